"""What common operations make of shapes, where a short rule says it.

FakeTensorMode asks PyTorch's own decompositions, which takes milliseconds: for a batch normalisation it runs some
twenty operations. The rules here cover the plain cases only (tensors that lie in memory in their natural order or
channels last, all of one type) and say nothing about any other; tests hold them against FakeTensorMode.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from oomproof.trace.torch.shapes.cell_rules import CELL_RULES
from oomproof.trace.torch.shapes.forms import NUMBERS, SAME, Form, alike, form_of, in_order, natural, rows
from oomproof.trace.torch.shapes.head_rules import HEAD_RULES
from oomproof.trace.torch.shapes.recurrent_rules import RECURRENT_RULES

aten = torch.ops.aten


def apply_rule(func: Any, args: Any, kwargs: Any) -> Any:
    """The results' forms, or None where no rule covers the case."""
    rule = _RULES.get(func)
    return None if rule is None else rule(args, kwargs)


def _find_leading(tensors: list[torch.Tensor]) -> torch.Tensor | None:
    """The tensor that has the shape of the result, where the others are alike or repeated along some of its sides."""
    if alike(tensors):
        return tensors[0]
    first = max(tensors, key=lambda each: (each.dim(), each.numel()))
    if 1 in first.shape or not first.dtype.is_floating_point or not rows(*tensors):
        return None
    for each in tensors:
        sides = zip(reversed(each.shape), reversed(first.shape), strict=False)
        if not each.dim() or any(side not in (1, whole) for side, whole in sides):
            return None
    return first


def _elementwise(args: Any, kwargs: Any) -> Form | None:
    """As the largest of its arguments: tensors, and numbers."""
    tensors = [each for each in (*args, *kwargs.values()) if isinstance(each, torch.Tensor)]
    others = [each for each in (*args, *kwargs.values()) if not isinstance(each, torch.Tensor)]
    plain = all(each is None or type(each) in NUMBERS or type(each) is str for each in others)
    first = _find_leading(tensors) if plain else None
    return None if first is None else form_of(first)


def _rule_of_clamp(args: Any, kwargs: Any) -> Form | None:
    return _elementwise(args, kwargs) if any(each is not None for each in args[1:]) else None


def _in_place(args: Any, kwargs: Any) -> Any:
    form = _elementwise(args, kwargs)
    return None if form is None or form.shape != args[0].shape else SAME


def _rule_of_fill(args: Any, kwargs: Any) -> Any:
    """A tensor of numbers that takes a number of its own kind."""
    return SAME if all(type(each) in NUMBERS for each in args[1:]) and not kwargs else None


_LAYING_OUT = frozenset({"dtype", "layout", "device", "pin_memory"})


def _is_plain_layout(kwargs: Any) -> bool:
    """Nothing is asked for but a type on the CPU."""
    return (
        kwargs.keys() <= _LAYING_OUT and kwargs.get("layout") in (None, torch.strided) and not kwargs.get("pin_memory")
    )


def _rule_of_new(args: Any, kwargs: Any) -> Form | None:
    if len(args) != 1 or not _is_plain_layout(kwargs) or not all(type(side) is int for side in args[0]):
        return None
    return Form(torch.Size(args[0]), in_order(args[0]), kwargs.get("dtype") or torch.get_default_dtype())


def _rule_of_like(args: Any, kwargs: Any) -> Form | None:
    rest = {name: value for name, value in kwargs.items() if name != "memory_format"}
    kept = kwargs.get("memory_format") in (None, torch.preserve_format)
    if len(args) != 1 or not kept or not _is_plain_layout(rest) or not natural(args[0]):
        return None
    return Form(args[0].shape, args[0].stride(), kwargs.get("dtype") or args[0].dtype)


def _rule_of_batch_norm(args: Any, kwargs: Any) -> tuple[Form, Form, Form] | None:
    """native_batch_norm in training."""
    x, weight, *_ = args
    plain = x.dtype is torch.float32 and weight is not None and weight.dtype is torch.float32
    if kwargs or not args[5] or x.dim() != 4 or not plain or not natural(x) or x.numel() <= x.shape[1]:
        return None  # of a single value a channel there is no deviation: PyTorch's word for it is an error
    return form_of(x), form_of(weight), form_of(weight)


def _rule_of_batch_norm_backward(args: Any, kwargs: Any) -> tuple[Form, Form, Form] | None:
    """native_batch_norm_backward, where every gradient is wanted."""
    gradient, x, weight, *_ = args
    if kwargs or not args[7] or not all(args[9]) or x.dim() != 4 or weight is None or x.dtype is not torch.float32:
        return None
    if weight.dtype is not torch.float32 or not alike([x, gradient]) or x.numel() <= x.shape[1]:
        return None
    return form_of(x), form_of(weight), form_of(weight)


def _rule_of_index(args: Any, kwargs: Any) -> Form | None:
    """Rows by their numbers: ``x[numbers]``."""
    x, indices = args
    numbers = indices[0]
    if len(indices) != 1 or numbers is None or numbers.dtype is not torch.int64 or numbers.dim() != 1:
        return None
    if not x.dim() or x.stride() != in_order(x.shape) or numbers.stride() != (1,) or not x.numel():
        return None
    shape = (*numbers.shape, *x.shape[1:])
    return Form(torch.Size(shape), in_order(shape), x.dtype)


def _rule_of_comparison(args: Any, kwargs: Any) -> Form | None:
    """Tensors that are all alike, or one and a number: a flag for every element."""
    x, other = args
    if kwargs or not natural(x) or not x.dim():
        return None
    same = isinstance(other, torch.Tensor) and (other.shape, other.stride(), other.dtype) == (
        x.shape,
        x.stride(),
        x.dtype,
    )
    return Form(x.shape, x.stride(), torch.bool) if same or type(other) in NUMBERS else None


def _rule_of_convolution(args: Any, kwargs: Any) -> Form | None:
    x, weight, bias, stride, padding, dilation, transposed, _, groups = args
    if kwargs or transposed or x.dim() != 4 or weight.dim() != 4 or not rows(x, weight):
        return None
    if bias is not None and (bias.shape != weight.shape[:1] or bias.dtype is not x.dtype):
        return None
    if (
        x.shape[1] != weight.shape[1] * groups
        or weight.shape[0] % groups
        or len(stride) + len(padding) + len(dilation) != 6
    ):
        return None
    spans = zip(x.shape[2:], weight.shape[2:], stride, padding, dilation, strict=True)
    sides = [(side + 2 * pad - gap * (taps - 1) - 1) // step + 1 for side, taps, step, pad, gap in spans]
    if min(sides) < 1:
        return None
    shape = torch.Size((x.shape[0], weight.shape[0], *sides))
    return Form(shape, in_order(shape), x.dtype)


def _rule_of_convolution_backward(args: Any, kwargs: Any) -> tuple[Form | None, ...] | None:
    gradient, x, weight, bias, *_ = args
    transposed, wanted = args[7], args[10]
    if kwargs or transposed or x.dim() != 4 or not rows(gradient, x, weight) or (wanted[2] and bias is None):
        return None
    biases = Form(torch.Size(bias), in_order(bias), x.dtype) if wanted[2] else None
    return form_of(x) if wanted[0] else None, form_of(weight) if wanted[1] else None, biases


def _rule_of_cat(args: Any, kwargs: Any) -> Form | None:
    """cat"""
    tensors, place = args[0], args[1] if len(args) > 1 else 0
    dims = {each.dim() for each in tensors}
    last = tensors[0].dim()
    if kwargs or len(dims) != 1 or not -last <= place < last or not rows(*tensors):
        return None
    place %= last
    if len({each.shape[:place] + each.shape[place + 1 :] for each in tensors}) != 1:
        return None
    shape = list(tensors[0].shape)
    shape[place] = sum(each.shape[place] for each in tensors)
    return Form(torch.Size(shape), in_order(shape), tensors[0].dtype)


_RULES: dict[Any, Callable[[Any, Any], Any]] = {
    **dict.fromkeys(
        (
            aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor, aten.maximum.default,
            aten.minimum.default, aten.relu.default, aten.sigmoid.default, aten.tanh.default, aten.exp.default,
            aten.log.default, aten.log2.default, aten.sqrt.default, aten.rsqrt.default, aten.neg.default,
            aten.abs.default, aten.floor.default, aten.clamp_min.default, aten.reciprocal.default,
            aten.gelu.default, aten.silu.default, aten.hardswish.default,
            aten.hardsigmoid.default, aten.threshold_backward.default, aten.sigmoid_backward.default,
            aten.tanh_backward.default, aten.gelu_backward.default, aten.silu_backward.default,
            aten.hardswish_backward.default, aten.hardsigmoid_backward.default, aten.hardtanh_backward.default,
            aten.add.Scalar, aten.sub.Scalar, aten.mul.Scalar, aten.div.Scalar,
        ),
        _elementwise,
    ),
    **dict.fromkeys(
        (
            aten.add_.Tensor, aten.sub_.Tensor, aten.mul_.Tensor, aten.div_.Tensor, aten.relu_.default,
            aten.hardtanh_.default, aten.hardswish_.default, aten.silu_.default, aten.copy_.default,
            aten.addcmul_.default, aten.addcdiv_.default, aten.lerp_.Scalar,
        ),
        _in_place,
    ),
    aten.clamp.default: _rule_of_clamp,
    aten.zero_.default: _rule_of_fill,
    aten.fill_.Scalar: _rule_of_fill,
    **dict.fromkeys((aten.empty.memory_format, aten.zeros.default, aten.ones.default), _rule_of_new),
    **dict.fromkeys(
        (aten.empty_like.default, aten.zeros_like.default, aten.ones_like.default, aten.clone.default), _rule_of_like
    ),
    aten.native_batch_norm.default: _rule_of_batch_norm,
    aten.native_batch_norm_backward.default: _rule_of_batch_norm_backward,
    aten.index.Tensor: _rule_of_index,
    **dict.fromkeys(
        (
            aten.eq.Scalar, aten.ne.Scalar, aten.lt.Scalar, aten.le.Scalar, aten.gt.Scalar, aten.ge.Scalar,
            aten.eq.Tensor, aten.ne.Tensor, aten.lt.Tensor, aten.le.Tensor, aten.gt.Tensor, aten.ge.Tensor,
        ),
        _rule_of_comparison,
    ),
    aten.convolution.default: _rule_of_convolution,
    aten.convolution_backward.default: _rule_of_convolution_backward,
    aten.cat.default: _rule_of_cat,
    **HEAD_RULES,
    **RECURRENT_RULES,
    **CELL_RULES,
}  # fmt: skip
