"""Optimizer state in 8 bits a number: blocks of 256, each with its largest value and codes in equal ratios below it.

Codes in equal ratios (logarithmic ones) have the same relative error everywhere, about 4.5 %: the smallest second
moment of a block stays what it is, where steps of equal width would make it 0 and its parameter's update enormous.
"""

from __future__ import annotations

import torch

BLOCK = 256
_OCTAVES = {True: 16, False: 32}
"""How far codes reach below a block's largest value. Second moments (without sign) are squares: twice as far."""
_STEPS = {True: 126, False: 255}
_SIGN = 128
_TINY = 1e-38


Packed = tuple[torch.Tensor, torch.Tensor]
"""(codes, one byte a number in the form of the values; the largest value of every block)"""


def quantise_values(values: torch.Tensor, signed: bool, place: Packed | None = None) -> Packed:
    """Values as codes, written into ``place`` if there is one."""
    blocks = _blocks(values, torch.float32)
    negative = blocks < 0
    blocks.abs_()
    largest = blocks.amax(dim=1)
    blocks.div_(largest.clamp(min=_TINY)[:, None]).log2_()
    top = _STEPS[signed] + signed  # code 0 is the number 0, but only where there is a sign
    blocks.mul_(_STEPS[signed] / _OCTAVES[signed]).add_(top).round_().clamp_(0, top)
    if signed:
        blocks.add_(negative, alpha=_SIGN)
    codes, kept = place or (torch.empty_like(values, dtype=torch.uint8), torch.empty_like(largest))
    _flat(codes).copy_(blocks.view(-1)[: values.numel()])
    return codes, kept.copy_(largest)


def dequantise_codes(codes: torch.Tensor, largest: torch.Tensor, signed: bool) -> torch.Tensor:
    blocks = _blocks(codes, torch.float32)
    top = _STEPS[signed] + signed
    if signed:
        negative = blocks >= _SIGN
        blocks.add_(negative, alpha=-_SIGN)
        nothing = blocks == 0
    blocks.sub_(top).mul_(_OCTAVES[signed] / _STEPS[signed]).exp2_()
    if signed:
        blocks.masked_fill_(nothing, 0)
        blocks.mul_(1 - 2 * negative.to(torch.int8))
    blocks.mul_(largest[:, None])  # last, so that a block with a NaN or an infinity in it stays bad
    return blocks.as_strided(codes.shape, codes.stride())


def _blocks(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A copy in rows of a block each; what is missing in the last one is 0."""
    rows = values.new_zeros((values.numel() + BLOCK - 1) // BLOCK, BLOCK, dtype=dtype)
    rows.view(-1)[: values.numel()].copy_(_flat(values))
    return rows


def _flat(values: torch.Tensor) -> torch.Tensor:
    """In the order of memory, whatever the memory format (state has that of its parameter, without gaps)."""
    return values.as_strided((values.numel(),), (1,))
