"""What PyTorch does otherwise on a GPU than on the CPU, all in one place.

The tracer runs on fake CPU tensors. In the ``cpu`` dialect nothing is changed, and a trace can be proved against the
real CPU allocator; in the ``cuda`` dialect, the product, these rules are in force.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Literal

import torch

from oomproof.frameworks.torch import (
    batch_norm,
    efficient_attention,
    flash_attention,
    lists_by_default,
    plain_attention,
    take_back,
)
from oomproof.trace.torch.gpu import autocast_policy, padded_sequences, recurrent, recurrent_cells

Dialect = Literal["cpu", "cuda"]

aten = torch.ops.aten
_HALF = (torch.float16, torch.bfloat16)
_LARGEST_FLASH_HEAD = 256
_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


@contextmanager
def dialect_in_force(dialect: Dialect) -> Iterator[None]:
    if dialect == "cpu":
        yield
        return
    library = torch.library.Library("aten", "IMPL")
    with ExitStack() as stack:
        stack.callback(take_back, library)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch tells of every kernel that is overridden, which is the point here
            autocast_policy.install(library)
            recurrent.install(library)
            recurrent_cells.install(library)
            padded_sequences.install(library)
            library.impl("batch_norm", _batch_norm, "AutogradCPU")
            library.impl("dropout", _dropout, "AutogradCPU")
            library.impl("scaled_dot_product_attention", _attention, "AutogradCPU")
        stack.enter_context(lists_by_default())  # and hold list-sized temporaries for it
        yield


def _dropout(x: torch.Tensor, p: float, train: bool) -> torch.Tensor:
    """CUDA keeps a bool mask (1 byte an element), the CPU the scaled noise (4 bytes)."""
    if train and 0 < p < 1 and x.numel():
        return aten.native_dropout(x, p, True)[0]
    return x * 0.0 if train and p == 1 else x.view_as(x)


def _batch_norm(x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, *rest: Any) -> torch.Tensor:
    """cuDNN's takes dense memory, and the copy of what is not is kept for backward (_batch_norm_impl_index in
    Normalization.cpp). Tables, bf16 and layers without weights go to a kernel that reads them as they are."""
    if x.dim() > 2 and weight is not None and bias is not None and x.dtype is not torch.bfloat16 and rest[-1]:
        last = _LAST.get(x.dim())
        if not x.is_contiguous() and (last is None or not x.is_contiguous(memory_format=last)):
            x = x.contiguous(memory_format=last if last and x.stride(1) == 1 else torch.contiguous_format)
    result: torch.Tensor = batch_norm(x, weight, bias, *rest)[0]
    return result


def _attention(  # noqa: PLR0917 (the operation's own signature)
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """The kernel that a GPU of compute capability 8.0 or more takes: flash, memory-efficient, or plain arithmetic; of
    those that the job has left enabled (torch.nn.attention.sdpa_kernel)."""
    flash, efficient = _fused_kernels()
    if enable_gqa and q.dim() == 4 and q.shape[1] != k.shape[1]:
        k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], dim=1) for t in (k, v))
    wanted = torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad)
    head, aligned = q.shape[-1], 4 if q.dtype is torch.float32 else 8
    takes_flash = q.dtype in _HALF and attn_mask is None and head == v.shape[-1] and head <= _LARGEST_FLASH_HEAD
    if q.dim() == 4 and takes_flash and flash:
        padded = -head % 8
        if padded:
            q, k, v = (torch.nn.functional.pad(t, (0, padded)) for t in (q, k, v))
            scale = head**-0.5 if scale is None else scale
        out = flash_attention(q, k, v, dropout_p, is_causal, scale=scale)[0]
        return out[..., :head] if padded else out
    if q.dim() == 4 and head % aligned == 0 and v.shape[-1] % aligned == 0 and efficient:
        mask = _bias(attn_mask, q, k)
        return efficient_attention(q, k, v, mask, wanted, dropout_p, is_causal, scale=scale)[0]
    return plain_attention(q, k, v, attn_mask, dropout_p, is_causal, scale=scale)[0]


def _fused_kernels() -> tuple[bool, bool]:
    """Whether flash and memory-efficient attention may run. cuDNN's, where it is all that may, takes about as much."""
    allowed = torch.backends.cuda
    flash, efficient, plain = (
        allowed.flash_sdp_enabled(),
        allowed.mem_efficient_sdp_enabled(),
        allowed.math_sdp_enabled(),
    )
    return flash or not (efficient or plain), efficient or not plain


def _bias(mask: torch.Tensor | None, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor | None:
    """The memory-efficient kernel wants an additive mask whose rows are padded to 16 elements."""
    if mask is None:
        return None
    if mask.dtype is torch.bool:
        mask = torch.zeros_like(mask, dtype=q.dtype).masked_fill_(~mask, float("-inf"))
    short = -mask.shape[-1] % 16
    if short:
        mask = torch.nn.functional.pad(mask, (0, short))[..., : mask.shape[-1]]
    return mask.to(q.dtype).expand(q.shape[0], q.shape[1], q.shape[2], k.shape[2])
