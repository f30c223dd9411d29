"""Every rule of head_rules.py gives what FakeTensorMode gives, covers what it is there for, and no wrong call."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_rules import FLOAT, HALF, LONG, SHAPES, agrees, tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from oomproof.trace.torch.shapes import rules

aten = torch.ops.aten
SIDE = st.integers(0, 4)
ORDERS = st.sampled_from(["rows", "turned", "part"])


@settings(deadline=None, max_examples=40)
@given(SIDE, SIDE, SIDE, st.sampled_from([FLOAT, HALF, LONG]), ORDERS)
def test_products(rows: int, inner: int, columns: int, dtype: torch.dtype, order: str) -> None:
    with FakeTensorMode():
        left, right = tensor((rows, inner), dtype, order), tensor((inner, columns), dtype, order)
        covered = [
            agrees(aten.mm.default, left, right),
            agrees(aten.mm.default, left, tensor((columns, inner), dtype).t()),
            agrees(aten.addmm.default, tensor((columns,), dtype), left, right),
            agrees(aten.bmm.default, tensor((3, rows, inner), dtype, order), tensor((3, inner, columns), dtype, order)),
        ]
        assert all(covered) or not rows * inner * columns


@settings(deadline=None, max_examples=60)
@given(SHAPES, st.lists(st.integers(-5, 4), max_size=3), st.booleans(), ORDERS, st.sampled_from([FLOAT, HALF, LONG]))
def test_sums(shape: tuple[int, ...], dims: list[int], keeps: bool, order: str, dtype: torch.dtype) -> None:
    right = [dim for dim in dims if -len(shape) <= dim < len(shape)]
    with FakeTensorMode():
        x = tensor(shape, dtype, order)
        if len(right) != len(dims) or len({dim % len(shape) for dim in dims}) != len(dims):
            assert rules.apply_rule(aten.sum.dim_IntList, (x, dims), {}) is None
        else:
            covered = agrees(aten.sum.dim_IntList, x, dims, keeps)
            assert covered or order != "rows" or not dims or dtype is LONG or 0 in shape
            if dtype is not LONG:
                assert agrees(aten.mean.dim, x, dims, keeps) == covered


@settings(deadline=None, max_examples=40)
@given(SHAPES, st.integers(-5, 4), ORDERS, st.sampled_from([FLOAT, HALF]))
def test_softmax(shape: tuple[int, ...], dim: int, order: str, dtype: torch.dtype) -> None:
    with FakeTensorMode():
        x = tensor(shape, dtype, order)
        for forth, back in (
            (aten._softmax.default, aten._softmax_backward_data.default),
            (aten._log_softmax.default, aten._log_softmax_backward_data.default),
        ):
            if not -len(shape) <= dim < len(shape):
                assert rules.apply_rule(forth, (x, dim, False), {}) is None
                assert rules.apply_rule(back, (x, x, dim, dtype), {}) is None
            else:
                covered = agrees(forth, x, dim, False), agrees(back, x, torch.empty_like(x), dim, dtype)
                assert all(covered) or order != "rows" or 0 in shape


@settings(deadline=None, max_examples=40)
@given(SHAPES, st.integers(0, 2), ORDERS, st.sampled_from([FLOAT, HALF]))
def test_losses(shape: tuple[int, ...], reduction: int, order: str, dtype: torch.dtype) -> None:
    with FakeTensorMode():
        x, target, one = tensor(shape, dtype, order), tensor(shape, dtype, order), torch.empty((), dtype=dtype)
        covered = [
            agrees(aten.smooth_l1_loss.default, x, target, reduction, 0.5),
            agrees(aten.binary_cross_entropy_with_logits.default, x, target, None, None, reduction),
            agrees(aten.smooth_l1_loss_backward.default, one, x, target, reduction, 0.5) or not reduction,
        ]
        assert all(covered) or order != "rows" or 0 in shape
        assert rules.apply_rule(aten.smooth_l1_loss.default, (x, tensor((7, *shape)), reduction, 0.5), {}) is None


@settings(deadline=None, max_examples=40)
@given(SIDE, st.integers(1, 5), st.integers(0, 2), ORDERS, st.sampled_from([FLOAT, HALF]))
def test_losses_of_classes(count: int, classes: int, reduction: int, order: str, dtype: torch.dtype) -> None:
    with FakeTensorMode():
        x, target, one = (
            tensor((count, classes), dtype, order),
            torch.empty(count, dtype=LONG),
            torch.empty((), dtype=dtype),
        )
        covered = [
            agrees(aten.nll_loss_forward.default, x, target, None, reduction, -100),
            agrees(aten.nll_loss_backward.default, one, x, target, None, reduction, -100, one) if reduction else False,
        ]
        assert all(covered) or order != "rows" or not reduction or not count
        wrong = torch.empty(count + 1, dtype=LONG)
        assert rules.apply_rule(aten.nll_loss_forward.default, (x, wrong, None, 1, -100), {}) is None


PAIR = st.lists(st.integers(1, 3), min_size=1, max_size=2)


@settings(deadline=None, max_examples=60)
@given(st.tuples(SIDE, SIDE, st.integers(1, 9), st.integers(1, 9)), PAIR, PAIR, st.integers(0, 1), PAIR, ORDERS)
def test_pooling(  # noqa: PLR0917 (hypothesis passes what it draws in order)
    shape: tuple[int, ...], window: list[int], stride: list[int], padding: int, dilation: list[int], order: str
) -> None:
    with FakeTensorMode():
        x = tensor(shape, order=order)
        for args in ((window,), (window, stride), (window, stride, [padding], dilation, False)):
            if agrees(aten.max_pool2d_with_indices.default, x, *args):
                y, indices = aten.max_pool2d_with_indices.default(x, *args)
                rest = (*args, *(window, window, [0], [1], False)[len(args) :])
                assert agrees(aten.max_pool2d_with_indices_backward.default, y, x, *rest, indices)
        assert not agrees(aten.max_pool2d_with_indices.default, x, window, stride, [0], [1], True) or order == "part"


def test_pooling_of_networks_is_covered_and_wrong_ones_are_not() -> None:
    pool = aten.max_pool2d_with_indices.default
    with FakeTensorMode():
        assert agrees(pool, torch.empty(2, 64, 56, 56), [3, 3], [2, 2], [1, 1])
        for wrong in ([3, 3], [2, 2], [2, 2]), ([99, 3], [2, 2]):
            assert rules.apply_rule(pool, (torch.empty(2, 64, 56, 56), *wrong), {}) is None


@settings(deadline=None, max_examples=40)
@given(SHAPES, st.integers(-5, 4), st.booleans(), ORDERS, st.sampled_from([FLOAT, LONG]))
def test_sorting(shape: tuple[int, ...], dim: int, falling: bool, order: str, dtype: torch.dtype) -> None:
    with FakeTensorMode():
        x = tensor(shape, dtype, order)
        if -len(shape) <= dim < len(shape):
            assert agrees(aten.sort.default, x, dim, falling) or order != "rows" or 0 in shape
        else:
            assert rules.apply_rule(aten.sort.default, (x, dim, falling), {}) is None


@settings(deadline=None, max_examples=40)
@given(SHAPES, st.integers(0, 4), ORDERS)
def test_writing_by_number_or_mask(shape: tuple[int, ...], count: int, order: str) -> None:
    put = aten.index_put_.default
    with FakeTensorMode():
        x, one = tensor((3, *shape), order=order), torch.empty(())
        numbers, mask = torch.empty(count, dtype=LONG), torch.empty(3, *shape, dtype=torch.bool)
        covered = [
            agrees(put, x, [numbers], one),
            agrees(put, x, [numbers], torch.empty(count, *shape), True),
            agrees(put, x, [mask], one),
            agrees(put, x, [mask[:, 0] if shape and shape[0] else mask], one),
        ]
        assert all(covered[:3]) or order != "rows" or 0 in shape
        for wrong in (
            ([numbers], torch.empty(5, 7)),
            ([torch.empty(9, dtype=torch.bool)], one),
            ([numbers], one.double()),
        ):
            assert rules.apply_rule(put, (x, *wrong), {}) is None


@pytest.mark.parametrize("generator", [None, torch.Generator()])
def test_random_draws(generator: Any) -> None:
    own = {} if generator is None else {"generator": generator}
    with FakeTensorMode():
        for rest in (own, {**own, "dtype": torch.float64}, {**own, "dtype": None, "pin_memory": False}):
            for name in ("rand", "randn"):
                func = getattr(getattr(aten, name), "generator" if own else "default")
                assert agrees(func, [2, 3], **rest) and agrees(func, [], **rest) and agrees(func, [0, 4], **rest)
            func = aten.randint.generator if own else aten.randint.default
            assert agrees(func, 9, [2, 3], **rest)
            func = aten.randint.low_generator if own else aten.randint.low
            assert agrees(func, 3, 9, [4], **rest) and rules.apply_rule(func, (9, 3, [4]), rest) is None
        func = aten.randperm.generator if own else aten.randperm.default
        assert agrees(func, 7, **own) and agrees(func, 0, **own) and agrees(func, 3, dtype=torch.int32, **own)
        assert rules.apply_rule(func, (-1,), own) is None
