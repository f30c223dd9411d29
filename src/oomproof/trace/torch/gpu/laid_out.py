"""Arguments that kernels lay out anew before they read them: many take dense memory alone, so that a tensor which was
permuted, cut out of a larger one or expanded is copied, in memory that no tensor shows.

Read in PyTorch (SoftMax.cu, layer_norm_kernel.cu, group_norm.cpp, DilatedMaxPool2d.cu, cudnn's BatchNorm.cpp); those
that the CPU copies too were seen there with torch 2.14. The rest (other pools, upsampling, padding, torchvision's
operations on regions) is taken to be alike, and was not read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from oomproof.memory.scratch.calls import LAID_OUT, SOFTMAX_BACKWARD

_DENSE: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("_softmax", "_log_softmax", "native_layer_norm", "native_group_norm"), (0,)),
    **dict.fromkeys(("_log_softmax_backward_data", SOFTMAX_BACKWARD), (0, 1)),
    **dict.fromkeys(("native_layer_norm_backward", "native_group_norm_backward"), (0, 1)),
    **dict.fromkeys(("roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool", "im2col", "col2im"), (0,)),
    **{f"reflection_pad{sides}d{way}": (0,) for sides in (1, 2, 3) for way in ("", "_backward")},
    **{f"replication_pad{sides}d_backward": (0,) for sides in (1, 2, 3)},
    "_cdist_forward": (0, 1),
}
"""arguments that are read channels first, one row after the other"""
_LIKE: dict[str, tuple[tuple[int, ...], int]] = {
    **dict.fromkeys(("max_pool2d_with_indices", "max_pool3d_with_indices", "avg_pool2d", "avg_pool3d"), ((0,), 0)),
    **dict.fromkeys(("_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "adaptive_max_pool2d"), ((0,), 0)),
    **dict.fromkeys(("max_pool2d_with_indices_backward", "max_pool3d_with_indices_backward"), ((0, 1), 1)),
    **dict.fromkeys(("avg_pool2d_backward", "avg_pool3d_backward"), ((0, 1), 1)),
    **dict.fromkeys(("_adaptive_avg_pool2d_backward", "_adaptive_avg_pool3d_backward"), ((0,), 1)),
    "adaptive_max_pool2d_backward": ((0,), 1),
    **dict.fromkeys(("native_batch_norm", "_native_batch_norm_legit"), ((0,), 0)),
    "native_batch_norm_backward": ((0, 1), 1),
    **{
        f"upsample_{kind}{way}": ((0,), 0)
        for kind in ("nearest1d", "nearest2d", "nearest3d", "linear1d", "bilinear2d", "bicubic2d", "trilinear3d")
        for way in ("", "_backward")
    },
}
"""arguments that are read channels last where the one named after them is laid out so, else channels first"""
assert _DENSE.keys() | _LIKE.keys() == LAID_OUT

_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def laid_out(name: str, args: Any) -> dict[str, Any] | None:
    """What is copied; the gradient of a softmax is multiplied by its result first, in a tensor of its own."""
    places, like = _LIKE.get(name) or (_DENSE[name], None)
    copied = copied_bytes([args[place] for place in places], [] if like is None else [args[like]])
    multiplied = args[0].numel() if name == SOFTMAX_BACKWARD else 0
    if not copied and not multiplied:
        return None
    return {"op": name, "elements": multiplied, "item": args[0].element_size(), "copied": copied}


def copied_bytes(given: Sequence[torch.Tensor], like: Sequence[torch.Tensor]) -> int:
    """Bytes of copies that are laid out as the kernel wants them: channels last if one of ``like`` is."""
    last = any(map(is_channels_last, like))
    return sum(each.numel() * each.element_size() for each in given if not _is_dense(each, last))


def is_channels_last(tensor: torch.Tensor) -> bool:
    """Of a tensor that may be read either way, channels come first."""
    return not tensor.is_contiguous() and _is_dense(tensor, True)


def _is_dense(tensor: torch.Tensor, last: bool) -> bool:
    wanted = _LAST.get(tensor.dim(), torch.contiguous_format) if last else torch.contiguous_format
    return bool(tensor.is_contiguous(memory_format=wanted))
