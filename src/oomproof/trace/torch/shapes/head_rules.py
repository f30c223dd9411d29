"""Rules, as in rules.py, for what follows a network's body: products, sums, softmax, losses, pooling, random draws.

A step has few of these, but for each of them FakeTensorMode goes through many operations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from oomproof.frameworks.torch import softmax_backwards, softmaxes
from oomproof.trace.torch.shapes.forms import SAME, Form, form_of, in_order, rows

aten = torch.ops.aten


def _in_rows(shape: Any, dtype: torch.dtype) -> Form:
    return Form(torch.Size(shape), in_order(shape), dtype)


def _real(*tensors: torch.Tensor) -> bool:
    """Floating numbers of one type, none of the tensors empty, each lying in memory row by row."""
    return tensors[0].dtype.is_floating_point and rows(*tensors)


def _rule_of_mm(args: Any, kwargs: Any) -> Form | None:
    """mm and bmm; how the factors lie in memory does not matter."""
    left, right = args
    fitting = (
        left.dim() == right.dim() > 1 and left.shape[:-2] == right.shape[:-2] and left.shape[-1] == right.shape[-2]
    )
    if kwargs or left.dtype is not right.dtype or not fitting or not left.numel() or not right.numel():
        return None
    return _in_rows((*left.shape[:-1], right.shape[-1]), left.dtype)


def _rule_of_addmm(args: Any, kwargs: Any) -> Form | None:
    """addmm with a bias for each column"""
    bias, left, right = args
    form = _rule_of_mm((left, right), kwargs)
    fitting = form is not None and bias.dtype is form.dtype and bias.shape == form.shape[1:]
    return form if fitting else None


def _rule_of_sum(args: Any, kwargs: Any) -> Form | None:
    """sum and mean over some dimensions"""
    x, dims, keeps = args[0], args[1] if len(args) > 1 else None, len(args) > 2 and args[2]
    if kwargs or not dims or not x.dim() or not _real(x) or not all(-x.dim() <= dim < x.dim() for dim in dims):
        return None
    gone = {dim % x.dim() for dim in dims}
    if len(gone) != len(dims):
        return None
    sides = [1 if place in gone else side for place, side in enumerate(x.shape) if keeps or place not in gone]
    return _in_rows(sides, x.dtype)


def _soft(args: Any, kwargs: Any) -> Form | None:
    """(log) softmax in the type of its input"""
    x, dim, widened = args
    return None if kwargs or widened or not _real(x) or not -x.dim() <= dim < x.dim() else form_of(x)


def _soft_back(args: Any, kwargs: Any) -> Form | None:
    gradient, result, dim, dtype = args
    alike = gradient.shape == result.shape and _real(gradient, result) and gradient.dtype is dtype
    return form_of(gradient) if not kwargs and alike and -result.dim() <= dim < result.dim() else None


def _loss(args: Any, kwargs: Any) -> Form | None:
    """smooth_l1_loss (input, target, reduction, beta) and binary cross-entropy (input, target, ..., reduction)"""
    x, target, *others = args
    if kwargs or x.shape != target.shape or not _real(x, target) or any(isinstance(e, torch.Tensor) for e in others):
        return None
    reductions = [each for each in others if type(each) is int]
    if len(reductions) > 1:
        return None
    reduction = reductions[0] if reductions else 1
    return form_of(x) if reduction == 0 else _in_rows((), x.dtype)


def _loss_back(args: Any, kwargs: Any) -> Form | None:
    """smooth_l1_loss_backward of a sum or mean"""
    gradient, x, target, reduction, _ = args
    plain = x.shape == target.shape and _real(x, target) and gradient.dtype is x.dtype
    return form_of(x) if not kwargs and plain and reduction != 0 and not gradient.dim() else None


def _of_classes(x: Any, target: Any) -> bool:
    """Scores of classes and, for each row, which one is right."""
    return bool(x.dim() == 2 and _real(x) and target.dtype is torch.int64 and target.shape == x.shape[:1])


def _class_loss(args: Any, kwargs: Any) -> tuple[Form, Form] | None:
    """nll_loss_forward of a sum or mean"""
    x, target, weight, reduction, _ = args
    if kwargs or weight is not None or reduction == 0 or not _of_classes(x, target):
        return None
    return _in_rows((), x.dtype), _in_rows((), x.dtype)


def _class_loss_back(args: Any, kwargs: Any) -> Form | None:
    gradient, x, target, weight, reduction, *_ = args
    plain = weight is None and reduction != 0 and not gradient.dim() and gradient.dtype is x.dtype
    return form_of(x) if not kwargs and plain and _of_classes(x, target) else None


_WINDOW_BY_WINDOW: list[Any] = [[], [0], [1], False]
"""what max_pool2d_with_indices takes by default: stride, padding, dilation, and whether sides are rounded up"""


def _rule_of_max_pool(args: Any, kwargs: Any) -> tuple[Form, Form] | None:
    """max_pool2d_with_indices"""
    x, window, stride, padding, dilation, rounded_up = list(args) + _WINDOW_BY_WINDOW[len(args) - 2 :]
    if kwargs or rounded_up or x.dim() != 4 or not _real(x):
        return None
    pairs = [2 * list(each) if len(each) == 1 else list(each) for each in (window, stride or window, padding, dilation)]
    spans = zip(x.shape[2:], *pairs, strict=True)
    sides = [(side + 2 * pad - gap * (taps - 1) - 1) // step + 1 for side, taps, step, pad, gap in spans]
    if min(sides) < 1 or any(2 * pad > taps for taps, pad in zip(pairs[0], pairs[2], strict=True)):
        return None
    shape = (*x.shape[:2], *sides)
    return _in_rows(shape, x.dtype), _in_rows(shape, torch.int64)


def _rule_of_max_pool_backward(args: Any, kwargs: Any) -> Form | None:
    gradient, x, indices = args[0], args[1], args[-1]
    plain = x.dim() == 4 and _real(gradient, x) and gradient.shape == indices.shape and rows(indices)
    return form_of(x) if not kwargs and plain else None


def _rule_of_sort(args: Any, kwargs: Any) -> tuple[Form, Form] | None:
    x, dim = args[0], args[1] if len(args) > 1 else -1
    if kwargs or not x.dim() or not rows(x) or not -x.dim() <= dim < x.dim():
        return None
    return form_of(x), _in_rows(x.shape, torch.int64)


def _put(args: Any, kwargs: Any) -> Any:
    """``x[mask] = number``, or ``x[numbers] = rows``"""
    x, indices, values, *_ = args
    places = indices[0] if len(indices) == 1 else None
    if kwargs or places is None or not x.dim() or not rows(x) or values.dtype is not x.dtype:
        return None
    if places.dtype is torch.bool:
        fitting = not values.dim() and places.dim() and places.shape == x.shape[: places.dim()]
    else:
        shape = (*places.shape, *x.shape[1:])
        fitting = places.dtype is torch.int64 and (not values.dim() or values.shape == shape)
    return SAME if fitting else None


_DRAWING = frozenset({"dtype", "layout", "device", "pin_memory", "generator"})


def _rule_of_random(shape: Any, dtype: torch.dtype, kwargs: Any) -> Form | None:
    plain = kwargs.keys() <= _DRAWING and kwargs.get("layout") in (None, torch.strided) and not kwargs.get("pin_memory")
    return (
        _in_rows(shape, kwargs.get("dtype", dtype) or torch.get_default_dtype())
        if plain and all(type(e) is int for e in shape)
        else None
    )


def _draws_numbers(args: Any, kwargs: Any) -> Form | None:
    """rand and randn"""
    return _rule_of_random(args[0], torch.get_default_dtype(), kwargs)


def _draws_integers(args: Any, kwargs: Any) -> Form | None:
    """randint: from 0 or from a lowest number"""
    *bounds, shape = args[:3] if type(args[1]) is int else args[:2]
    return _rule_of_random(shape, torch.int64, kwargs) if bounds[-1] > (bounds[0] if len(bounds) > 1 else 0) else None


def _draws_an_order(args: Any, kwargs: Any) -> Form | None:
    """randperm"""
    return _rule_of_random(args[:1], torch.int64, kwargs) if args[0] >= 0 else None


HEAD_RULES: dict[Any, Callable[[Any, Any], Any]] = {
    aten.mm.default: _rule_of_mm,
    aten.bmm.default: _rule_of_mm,
    aten.addmm.default: _rule_of_addmm,
    aten.sum.dim_IntList: _rule_of_sum,
    aten.mean.dim: _rule_of_sum,
    **dict.fromkeys(softmaxes, _soft),
    **dict.fromkeys(softmax_backwards, _soft_back),
    aten.smooth_l1_loss.default: _loss,
    aten.smooth_l1_loss_backward.default: _loss_back,
    aten.binary_cross_entropy_with_logits.default: _loss,
    aten.nll_loss_forward.default: _class_loss,
    aten.nll_loss_backward.default: _class_loss_back,
    aten.max_pool2d_with_indices.default: _rule_of_max_pool,
    aten.max_pool2d_with_indices_backward.default: _rule_of_max_pool_backward,
    aten.sort.default: _rule_of_sort,
    aten.index_put_.default: _put,
    **dict.fromkeys((aten.rand.default, aten.rand.generator, aten.randn.default, aten.randn.generator), _draws_numbers),
    **dict.fromkeys(
        (aten.randint.default, aten.randint.generator, aten.randint.low, aten.randint.low_generator), _draws_integers
    ),
    **dict.fromkeys((aten.randperm.default, aten.randperm.generator), _draws_an_order),
}
