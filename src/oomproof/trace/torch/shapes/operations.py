"""What the tracer must know of an operation."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from oomproof.frameworks.torch import current_node, schema_of, unsafe_view
from oomproof.memory.scratch.recurrent import FORWARD
from oomproof.trace.torch.gpu.scratch import TAKE_SCRATCH
from oomproof.trace.torch.gpu.written_out import KEEP_MORE
from oomproof.trace.torch.values import tensors_in

aten = torch.ops.aten

_COSTLY = (
    "convolution", "mm", "addmm", "bmm", "baddbmm", "batch_norm", "layer_norm", "group_norm", "scaled_dot_product",
    "linear", "roi_align", "roi_pool", "upsample", "max_pool", "avg_pool", "embedding", "efficient_attention",
    "flash_attention", "grid_sampler", "deform_conv", "cudnn_rnn",
)  # fmt: skip
_ASKS = frozenset({"nms", "_local_scalar_dense", "equal", "bincount", "is_nonzero", "item"})
_NEVER_ASKS = frozenset({"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index"})
_ELEMENTWISE = frozenset({
    "abs", "add", "addcdiv", "addcmul", "clamp_max", "clamp_min", "copy", "div", "exp", "lerp", "maximum", "minimum",
    "mul", "neg", "pow", "reciprocal", "sign", "sqrt", "sub", "zero",
})  # fmt: skip
_VIEWS = (
    aten.view.default, aten.detach.default, aten.alias.default, aten.t.default, aten.transpose.int,
    aten.permute.default, aten.slice.Tensor, aten.select.int, aten.unsqueeze.default, aten.squeeze.dim,
    aten.squeeze.default, aten.squeeze.dims, aten.expand.default, aten.unbind.int, aten.split.Tensor,
    aten.split_with_sizes.default,
)  # fmt: skip
VIEWS = {**dict(zip(_VIEWS, _VIEWS, strict=True)), unsafe_view: aten.view.default}
"""other looks at the same memory, and PyTorch's own kernel for each: FakeTensorMode's way around it takes up to
milliseconds, and for ``view`` it has a rule in Python, for sizes that are symbols, that loads torch.distributed"""


_ANSWERED_APART = frozenset({
    "index", "index_put", "scatter", "scatter_add", "index_add", "put", "lift", "lift_fresh", "upsample_nearest1d",
    "upsample_nearest2d", "upsample_nearest3d",
})  # fmt: skip
RANDOM_FILL = frozenset({"uniform_", "normal_", "trunc_normal_", "bernoulli_", "random_", "erfinv_"})


@dataclass(frozen=True, eq=False)  # one of a kind, so that the thing itself is a quick key
class OpFacts:
    """What the tracer must know of an operation, looked up once."""

    name: str
    apart: bool
    """the tracer has a way of its own for it; any other is simply run on shapes"""
    view: Any
    """PyTorch's own kernel, where it only looks at its argument otherwise"""
    asks: bool
    """needs the values of its arguments: data-dependent output or shape"""
    costly: bool
    written: tuple[int | str, ...]
    """arguments it writes to: positions, or names of keyword-only ones"""
    at_once: bool
    """updates a list of tensors element by element"""
    random: bool
    scratch: bool
    """its kernel may take memory that no tensor shows"""
    keeps_more: bool
    """its result may hold more memory than its shape says"""
    recurs: bool
    """its results are new tensors, which share nothing with its arguments, or the tensor that it writes to"""


@cache
def look_up(func: Any) -> OpFacts:
    schema = schema_of(func)
    namespace, name = schema.name.split("::")
    asks = name in _ASKS or (
        name not in _NEVER_ASKS
        and (torch.Tag.data_dependent_output in func.tags or torch.Tag.dynamic_output_shape in func.tags)
    )
    written = tuple(
        argument.name if argument.kwarg_only else place
        for place, argument in enumerate(schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    )
    at_once = name.startswith("_foreach_") and name.removeprefix("_foreach_").rstrip("_") in _ELEMENTWISE
    random = torch.Tag.nondeterministic_seeded in func.tags
    makes_new = all(each.alias_info is None for each in (*schema.arguments, *schema.returns))
    in_place = name.endswith("_") and written == (0,) and torch.Tag.inplace_view not in func.tags
    apart = asks or at_once or namespace in ("prim", "profiler") or name in _ANSWERED_APART or name in RANDOM_FILL
    return OpFacts(
        name=name,
        apart=apart,
        view=VIEWS.get(func),
        asks=asks,
        costly=any(part in name for part in _COSTLY),
        written=written,
        at_once=at_once,
        random=random,
        scratch=name in TAKE_SCRATCH,
        keeps_more=name in KEEP_MORE,
        recurs=makes_new or in_place,
    )


def empty_image(facts: OpFacts, args: Any) -> bool:
    """The fake form of upsampling fails on tensors without elements (torch 2.14): masks of an image without objects."""
    return facts.name.startswith("upsample_nearest") and not facts.name.endswith("_backward") and not args[0].numel()


_CHOICES = tuple(
    f"{name}Backward" for name in ("Max", "Min", "Median", "Nanmedian", "Kthvalue", "Mode", "Topk", "Sort", "Msort")
)
_IN_PLACE = {
    aten.index_put.default: (aten.index_put_.default, ("IndexBackward",)),
    aten.scatter.src: (aten.scatter_.src, _CHOICES),
    aten.scatter_add.default: (aten.scatter_add_.default, ("GatherBackward", "CummaxBackward", "CumminBackward")),
    aten.index_add.default: (aten.index_add_.default, ("IndexSelectBackward",)),
    aten.put.default: (aten.put_.default, ("TakeBackward",)),
}


def as_for_real(func: Any) -> Any:
    """Autograd fills the gradient of ``x[indices]`` in place, and those of other choices. Only for tensor subclasses,
    as fake tensors are, it makes a second table (index_backward and value_selecting_reduction_backward in
    torch/csrc/autograd/FunctionsManual.cpp, 2.14)."""
    if func not in _IN_PLACE:
        return func
    node, (in_place, nodes) = current_node(), _IN_PLACE[func]
    return in_place if node is not None and node.name().startswith(nodes) else func


def mixes(facts: OpFacts, args: Any, outs: Any) -> bool:
    """Whether what comes out for one image depends on the others, or on how many random numbers came before."""
    if "batch_norm" in facts.name and not facts.name.endswith("backward"):
        return "with_update" in facts.name or "no_stats" in facts.name or (len(args) > 5 and args[5] is True)
    if facts.name == FORWARD:
        return bool(args[11] and args[12])  # dropout between layers, in training
    if not facts.random or facts.name.startswith("_scaled_dot_product"):  # attention without dropout draws nothing
        return False
    return any(tensor.numel() > 1 for tensor in outs)  # torchvision's detectors draw a size among one


def find_written(facts: OpFacts, args: Any, kwargs: Any) -> list[torch.Tensor]:
    if not facts.written:
        return []
    if facts.written == (0,) and isinstance(args[0], torch.Tensor):
        return [args[0]]
    chosen = [
        kwargs.get(place) if isinstance(place, str) else (args[place] if place < len(args) else None)
        for place in facts.written
    ]
    return tensors_in(chosen)
