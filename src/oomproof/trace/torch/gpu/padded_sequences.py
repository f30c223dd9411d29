"""nn.utils.rnn.pad_packed_sequence: PyTorch's own kernel looks into the memory of the lengths, which are fake here.

What it does is done again with operations that the tracer sees: one padded tensor, into which stretches of time steps
are copied that run for the same number of sequences (aten/src/ATen/native/PackedSequence.cpp, 2.14).
"""

from __future__ import annotations

import itertools

import torch


def install(library: torch.library.Library) -> None:
    library.impl("_pad_packed_sequence", _pad, "AutogradCPU")


def _pad(
    packed: torch.Tensor, running: torch.Tensor, batch_first: bool, value: float, longest: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """``running``: how many sequences go on at each time step."""
    counts: list[int] = running.tolist()
    steps = max(len(counts), longest)
    padded = torch.full((steps, counts[0], *packed.shape[1:]), value, dtype=packed.dtype, device=packed.device)
    at = row = 0
    for count, stretch in itertools.groupby(counts):
        length = len(list(stretch))
        rows = packed.narrow(0, row, length * count)
        padded[at : at + length, :count] = rows.view(length, count, *packed.shape[1:])
        at, row = at + length, row + length * count
    lengths = torch.tensor([sum(count > place for count in counts) for place in range(counts[0])])
    return (padded.transpose(0, 1) if batch_first else padded), lengths
