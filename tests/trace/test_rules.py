"""Every rule of rules.py gives what FakeTensorMode gives, and covers the cases that it is there for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode

from oomproof.trace.torch.shapes import rules
from oomproof.trace.torch.shapes.forms import SAME
from oomproof.trace.torch.values import leaves

aten = torch.ops.aten
FLOAT, HALF, LONG = torch.float32, torch.bfloat16, torch.int64
SHAPES = st.lists(st.integers(0, 4), max_size=5).map(tuple)


def tensor(shape: tuple[int, ...], dtype: torch.dtype = FLOAT, order: str = "rows") -> torch.Tensor:
    if order == "turned":
        return torch.empty(shape[::-1], dtype=dtype).permute(tuple(reversed(range(len(shape)))))
    if order == "part":
        return torch.empty((*shape, 2), dtype=dtype)[..., 0]
    made = torch.empty(shape, dtype=dtype)
    return made.to(memory_format=torch.channels_last) if order == "channels last" and len(shape) == 4 else made


def agrees(func: Any, *args: Any, **kwargs: Any) -> bool:
    """Whether a rule covers the case; if so, it is right. Called under a FakeTensorMode."""
    forms = rules.apply_rule(func, args, kwargs)
    if forms is None:
        return False
    out = func(*args, **kwargs)
    if forms is SAME:
        assert out is args[0]
        return True
    expected = [None if each is None else (each.shape, each.stride(), each.dtype) for each in leaves(out)]
    assert [None if form is None else (form.shape, form.strides, form.dtype) for form in leaves(forms)] == expected
    made = [each for each in leaves(out) if isinstance(each, torch.Tensor)]
    storages = [each.untyped_storage() for each in made]
    assert len({storage._cdata for storage in storages}) == len(storages)
    spans = [1 + sum(stride * (side - 1) for side, stride in zip(e.shape, e.stride(), strict=True)) for e in made]
    needed = [span * e.element_size() if e.numel() else 0 for span, e in zip(spans, made, strict=True)]
    assert [storage.nbytes() for storage in storages] == needed
    return True


ARGUMENTS: dict[int, Callable[[torch.Tensor, torch.Tensor], tuple[Any, ...]]] = {
    1: lambda x, y: (x,),
    2: lambda x, y: (x, y),
    3: lambda x, y: (x, y, 0.5),
    4: lambda x, y: (x, y, -1.0, 1.0),
}
ELEMENTWISE = [func for func, rule in rules._RULES.items() if rule in (rules._elementwise, rules._in_place)]


def arguments_of(func: Any, x: torch.Tensor, y: torch.Tensor) -> tuple[Any, ...]:
    if func in (aten.addcmul_.default, aten.addcdiv_.default):
        return x, y, y
    if func is aten.lerp_.Scalar:
        return x, y, 0.5
    if func._overloadname == "Scalar":
        return x, 0.5
    if func is aten.hardtanh_.default:
        return (x,)
    if func is aten.clamp_min.default:
        return x, 0.5
    wanted = sum(not (each.has_default_value() or each.kwarg_only) for each in func._schema.arguments)
    return ARGUMENTS[wanted](x, y)


@settings(deadline=None, max_examples=150)
@given(
    st.sampled_from(ELEMENTWISE),
    SHAPES,
    st.sampled_from(["rows", "channels last", "turned", "part"]),
    st.sampled_from([FLOAT, HALF, LONG]),
    st.booleans(),
)
def test_elementwise(func: Any, shape: tuple[int, ...], order: str, dtype: torch.dtype, other: bool) -> None:
    with FakeTensorMode():
        x, y = tensor(shape, dtype, order), tensor(shape, dtype, "rows" if other else order)
        agrees(func, *arguments_of(func, x, y))


@settings(deadline=None, max_examples=150)
@given(
    st.sampled_from([aten.add.Tensor, aten.mul.Tensor, aten.sub_.Tensor, aten.div_.Tensor]),
    st.lists(st.integers(2, 4), min_size=1, max_size=4),
    st.data(),
)
def test_repeated_along_some_sides(func: Any, shape: list[int], data: st.DataObject) -> None:
    whole = [data.draw(st.booleans()) for _ in shape][data.draw(st.integers(0, len(shape))) :]
    small = [side if as_it_is else 1 for side, as_it_is in zip(shape[len(shape) - len(whole) :], whole, strict=True)]
    with FakeTensorMode():
        assert agrees(func, torch.empty(shape), torch.empty(small)) or not small
        if func in (aten.add.Tensor, aten.mul.Tensor):
            assert agrees(func, torch.empty(small), torch.empty(shape)) or not small


@pytest.mark.parametrize("func", ELEMENTWISE)
@pytest.mark.parametrize("order", ["rows", "channels last"])
def test_elementwise_covers_activations(func: Any, order: str) -> None:
    with FakeTensorMode():
        x, y = tensor((2, 8, 4, 6), order=order), tensor((2, 8, 4, 6), order=order)
        assert agrees(func, *arguments_of(func, x, y))


def test_what_is_not_alike_is_left_to_pytorch() -> None:
    with FakeTensorMode():
        row, table, half = torch.empty(4), torch.empty(3, 4), torch.empty(3, 4).half()
        whole = torch.empty(3, 4, dtype=LONG)
        for other in (half, whole, table.double(), torch.tensor(2.0), torch.empty(4, 3).t()):
            assert not agrees(aten.add.Tensor, table, other)
            assert not agrees(aten.add_.Tensor, table, other)
        assert not agrees(aten.add.Tensor, torch.empty(3, 1), torch.empty(1, 4))
        assert rules.apply_rule(aten.add_.Tensor, (row, table), {}) is None
        assert not agrees(aten.div.Tensor, whole, whole)
        assert agrees(aten.clamp.default, table, 0) and agrees(aten.clamp.default, table, None, 1.5)
        assert rules.apply_rule(aten.clamp.default, (table,), {}) is None
        with pytest.raises(RuntimeError):
            aten.add.Tensor(table, torch.empty(5))
        assert rules.apply_rule(aten.add.Tensor, (table, torch.empty(5)), {}) is None


@settings(deadline=None, max_examples=60)
@given(SHAPES, st.sampled_from([None, FLOAT, HALF, LONG]), st.sampled_from(["rows", "channels last", "turned", "part"]))
def test_new_tensors(shape: tuple[int, ...], dtype: torch.dtype | None, order: str) -> None:
    with FakeTensorMode():
        for func in (aten.empty.memory_format, aten.zeros.default, aten.ones.default):
            assert agrees(func, list(shape), dtype=dtype, device=torch.device("cpu"), pin_memory=False)
        x = tensor(shape, order=order)
        for func in (aten.empty_like.default, aten.zeros_like.default, aten.ones_like.default):
            agrees(func, x, dtype=dtype)
            agrees(func, x, memory_format=torch.preserve_format)
            assert rules.apply_rule(func, (x,), {"memory_format": torch.channels_last}) is None
        agrees(aten.clone.default, x)
        assert agrees(aten.zero_.default, x) and agrees(aten.fill_.Scalar, x, 1.5)


@settings(deadline=None, max_examples=25)
@given(
    st.tuples(st.integers(2, 3), st.integers(1, 8), st.integers(1, 5), st.integers(1, 5)),
    st.sampled_from(["rows", "channels last", "turned"]),
    st.sampled_from([FLOAT, HALF]),
    st.booleans(),
)
def test_batch_normalisation(shape: tuple[int, ...], order: str, dtype: torch.dtype, training: bool) -> None:
    with FakeTensorMode():
        x, gradient = tensor(shape, dtype, order), tensor(shape, dtype, order)
        weight, bias, mean, deviation = (torch.empty(shape[1]) for _ in range(4))
        covered = agrees(aten.native_batch_norm.default, x, weight, bias, mean, deviation, training, 0.1, 1e-5)
        assert covered or order != "rows" or dtype is not FLOAT or not training
        rest = (x, weight, mean, deviation, mean, deviation, training, 1e-5)
        back = agrees(aten.native_batch_norm_backward.default, gradient, *rest, [True, True, True])
        assert back or order != "rows" or dtype is not FLOAT or not training
        assert not agrees(aten.native_batch_norm_backward.default, gradient, *rest, [False, True, True])


def test_a_single_value_is_not_normalised() -> None:
    with FakeTensorMode():
        x, weight = torch.empty(1, 8, 1, 1), torch.empty(8)
        assert (
            rules.apply_rule(aten.native_batch_norm.default, (x, weight, weight, weight, weight, True, 0.1, 1e-5), {})
            is None
        )
        back = (x, x, weight, weight, weight, weight, weight, True, 1e-5, [True, True, True])
        assert rules.apply_rule(aten.native_batch_norm_backward.default, back, {}) is None


@settings(deadline=None, max_examples=60)
@given(SHAPES, st.integers(0, 5), st.sampled_from(["rows", "turned", "part"]), st.sampled_from([LONG, torch.int32]))
def test_rows_by_number(shape: tuple[int, ...], count: int, order: str, dtype: torch.dtype) -> None:
    with FakeTensorMode():
        x, numbers = tensor((3, *shape), order=order), torch.empty(count, dtype=dtype)
        covered = agrees(aten.index.Tensor, x, [numbers])
        assert covered or order != "rows" or dtype is not LONG or not x.numel()
        assert not agrees(aten.index.Tensor, x, [numbers, numbers]) if shape else True


@settings(deadline=None, max_examples=60)
@given(SHAPES, st.sampled_from(["rows", "channels last", "turned", "part"]), st.sampled_from([FLOAT, HALF, LONG]))
def test_comparisons(shape: tuple[int, ...], order: str, dtype: torch.dtype) -> None:
    with FakeTensorMode():
        x, y = tensor(shape, dtype, order), tensor(shape, dtype, order)
        for name in ("eq", "ne", "lt", "le", "gt", "ge"):
            op = getattr(aten, name)
            covered = agrees(op.Scalar, x, 0.5), agrees(op.Scalar, x, 1), agrees(op.Tensor, x, y)
            assert all(covered) or order != "rows" or not shape
            assert not agrees(op.Tensor, x, torch.empty((), dtype=dtype)) or not shape


SIDES = st.tuples(st.integers(1, 3), st.integers(1, 9), st.integers(1, 9))
PAIR = st.tuples(st.integers(1, 3), st.integers(1, 3)).map(list)


@settings(deadline=None, max_examples=50)
@given(SIDES, st.tuples(PAIR, PAIR), PAIR, st.integers(1, 3), st.integers(1, 3), st.integers(1, 4), st.booleans())
def test_convolutions(  # noqa: PLR0917 (hypothesis passes what it draws in order)
    sides: tuple[int, int, int],
    taps: tuple[list[int], list[int]],
    stride: list[int],
    groups: int,
    channels: int,
    filters: int,
    half: bool,
) -> None:
    images, height, width = sides
    kernel, padding = taps
    dtype = HALF if half else FLOAT
    with FakeTensorMode():
        x = torch.empty(images, channels * groups, height, width, dtype=dtype)
        weight = torch.empty(filters * groups, channels, *kernel, dtype=dtype)
        bias = torch.empty(filters * groups, dtype=dtype)
        for given_bias in (None, bias):
            rest = (stride, padding, [1, 1], False, [0, 0], groups)
            if agrees(aten.convolution.default, x, weight, given_bias, *rest):
                y = aten.convolution.default(x, weight, given_bias, *rest)
                sizes = None if given_bias is None else [filters * groups]
                for mask in ([True, True, sizes is not None], [False, True, False]):
                    assert agrees(aten.convolution_backward.default, torch.empty_like(y), x, weight, sizes, *rest, mask)
        like = x.to(memory_format=torch.channels_last)
        if like.stride() != x.stride():
            assert not agrees(aten.convolution.default, like, weight, None, *rest)
        assert not agrees(aten.convolution.default, x, weight.double(), None, *rest)


def test_convolutions_of_networks_are_covered_and_wrong_ones_are_not() -> None:
    plain = ([2, 2], [3, 3], [1, 1], False, [0, 0], 1)
    with FakeTensorMode():
        x, weight = torch.empty(2, 3, 64, 64), torch.empty(16, 3, 7, 7)
        assert agrees(aten.convolution.default, x, weight, None, *plain)
        for wrong in (torch.empty(16, 4, 7, 7), torch.empty(16, 3, 99, 7), torch.empty(16, 3, 7)):
            assert rules.apply_rule(aten.convolution.default, (x, wrong, None, *plain), {}) is None
        assert rules.apply_rule(aten.convolution.default, (x, weight, torch.empty(3), *plain), {}) is None


@settings(deadline=None, max_examples=60)
@given(SHAPES, st.integers(1, 3), st.integers(-2, 1), st.sampled_from(["rows", "turned", "part"]))
def test_joined(shape: tuple[int, ...], count: int, place: int, order: str) -> None:
    shape = (2, 3, *shape)
    with FakeTensorMode():
        parts = [tensor(shape, order=order) for _ in range(count)]
        covered = agrees(aten.cat.default, parts, place)
        assert covered or order != "rows" or 0 in shape
        assert not agrees(aten.cat.default, [*parts, tensor(shape).double()], place)
        wrong = [*parts, tensor((5, 7, *shape[2:]))]
        assert rules.apply_rule(aten.cat.default, (wrong, place), {}) is None
        assert rules.apply_rule(aten.cat.default, (parts, len(shape)), {}) is None
