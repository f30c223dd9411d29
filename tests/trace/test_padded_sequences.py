"""Sequences of several lengths: packed for a recurrent layer, and padded again behind it."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from oomproof.changes.torch.training import Training
from oomproof.trace.torch.gpu import padded_sequences
from oomproof.trace.torch.loop import Pieces
from oomproof.trace.torch.trace_step import trace_step

LENGTHS = ([9, 9, 4, 1], [3], [5, 5, 5], [7, 6, 5, 4, 3, 2, 1])


@pytest.mark.parametrize(
    ("lengths", "batch_first", "longest"), list(itertools.product(LENGTHS, (False, True), (None, 12))), ids=str
)
def test_padded_as_pytorch_pads(lengths: list[int], batch_first: bool, longest: int | None) -> None:
    x = torch.rand(max(lengths), len(lengths), 3, requires_grad=True)
    packed = pack_padded_sequence(x, lengths)
    theirs, their_lengths = pad_packed_sequence(packed, batch_first, -1.5, longest)
    ours, our_lengths = padded_sequences._pad(packed.data, packed.batch_sizes, batch_first, -1.5, longest or 0)
    assert torch.equal(ours, theirs)
    assert torch.equal(our_lengths, their_lengths)
    (mine,), (known,) = (torch.autograd.grad((each**2).sum(), x, retain_graph=True) for each in (ours, theirs))
    assert torch.equal(mine, known)


def test_a_recurrent_layer_over_packed_sequences_is_traced() -> None:
    class Reader(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = nn.LSTM(64, 32, 2)

        def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
            states, _ = self.rnn(pack_padded_sequence(x, lengths))
            padded, found = pad_packed_sequence(states, padding_value=-1.0)
            assert padded.shape == (int(found.max()), 4, 32)
            return padded

    def batch() -> tuple[torch.Tensor, torch.Tensor]:
        return torch.rand(40, 4, 64), torch.tensor([40, 30, 20, 10])

    step = trace_step(Pieces(Reader, batch, lambda model, data: model(*data).sum()), Training())
    padded = 40 * 4 * 32 * 4
    made = step.bytes[step.op == step.ops.index("full")]
    assert padded in made.tolist()
