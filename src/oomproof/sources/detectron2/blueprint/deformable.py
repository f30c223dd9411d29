"""Deformable convolutions as Detectron2's own GPU kernel runs them.

The kernel lays the image out as columns, nine numbers for each of the input, in a buffer that lives as long as the
call: for the whole batch at once where offsets alone are learned, image by image where a mask is learned too.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

TAPS = 9
"""of a 3 x 3 filter, the only size that Detectron2 builds"""
AT_ONCE = 64
"""images whose columns are laid out together at most"""


class DeformableConv(nn.Module):
    """A 3 x 3 convolution whose taps are moved by offsets, and weighed by a mask where there is one."""

    def __init__(self, inputs: int, outputs: int, groups: int, norm: nn.Module | None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs // groups, 3, 3))
        self.norm = norm

    def forward(self, x: torch.Tensor, offset: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        out = _Deformed.apply(x, offset, mask, self.weight)
        return out if self.norm is None else self.norm(out)


class _Deformed(torch.autograd.Function):
    """Makes the tensors that the kernel makes; what is in them does not matter to memory."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, offset: torch.Tensor, mask: Any, weight: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, offset, mask, weight)
        out = x.new_empty(x.shape[0], weight.shape[0], *offset.shape[2:])
        _run_kernel(x, out, mask, reordered=True)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        x, offset, mask, weight = ctx.saved_tensors
        of_x, of_offset = torch.zeros_like(x), torch.zeros_like(offset)
        of_mask = None if mask is None else torch.zeros_like(mask)
        _run_kernel(x, grads[0], mask, reordered=False)
        of_weight = torch.zeros_like(weight)
        _run_kernel(x, grads[0], mask, reordered=True)
        return of_x, of_offset, of_mask, of_weight


def _run_kernel(x: torch.Tensor, out: torch.Tensor, mask: torch.Tensor | None, *, reordered: bool) -> None:
    """Columns, and for a whole batch a copy of the output in another order, alive at the same moment."""
    images = 1 if mask is not None else min(x.shape[0], AT_ONCE)
    columns = x.new_zeros(x.shape[1] * TAPS, images * out.shape[2] * out.shape[3])
    if reordered and mask is None:
        torch.zeros_like(out)
    del columns
