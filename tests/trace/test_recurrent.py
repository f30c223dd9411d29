"""LSTM, GRU and RNN as a GPU runs them: one call of cuDNN, and a reserve space that is kept for backward."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from small_nets import traced
from torch import nn

from oomproof.memory.cards import devices
from oomproof.memory.make_forecast import build_forecast
from oomproof.memory.runtime import Runtime
from oomproof.memory.scratch.recurrent import NOTE, WIDER, reserve_bytes
from oomproof.memory.settings import Settings
from oomproof.memory.timeline import Timeline
from oomproof.trace.torch.gpu.dialect import Dialect
from oomproof.trace.torch.loop import Pieces

STEPS, SEQUENCES, INPUT, HIDDEN = 40, 16, 24, 32
STATES = STEPS * SEQUENCES * HIDDEN * 4
"""bytes of one number for every hidden unit, sequence and time step"""


class Net(nn.Module):
    def __init__(self, kind: str, packed: bool = False, last: bool = False, **how: Any) -> None:
        super().__init__()
        self.cell, self.packed, self.last = getattr(nn, kind)(INPUT, HIDDEN, **how), packed, last

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.packed:
            running = torch.full((STEPS,), SEQUENCES)
            out, _ = self.cell(nn.utils.rnn.PackedSequence(x.reshape(-1, INPUT), running))
            return out.data
        out, state = self.cell(x)
        return (state[0] if isinstance(state, tuple) else state) if self.last else out


def trace(kind: str, dialect: Dialect = "cuda", precision: str = "fp32", **how: Any) -> Timeline:
    shape = (SEQUENCES, STEPS, INPUT) if how.get("batch_first") else (STEPS, SEQUENCES, INPUT)
    job = Pieces(lambda: Net(kind, **how), lambda: torch.rand(shape), lambda net, x: net(x).square().mean())
    return traced(job, dialect, precision=precision)


def made(timeline: Timeline, op: str) -> list[int]:
    """Sizes of what an operation made in one of the two steps of a timeline, the largest first."""
    return sorted(timeline.bytes[timeline.op == timeline.ops.index(op)].tolist(), reverse=True)[::2]


def kept_for_backward(timeline: Timeline) -> int:
    """The largest block that the forward call made: its reserve space."""
    return made(timeline, "_cudnn_rnn")[0]


@pytest.mark.parametrize(
    ("cell", "layers", "numbers", "item", "published"),
    [
        # github.com/pytorch/pytorch/issues/2895: 4 layers of 320 units (from the parameters that it prints)
        ("lstm", 4, 25_000 * 320, 4, 736_000_000),
        ("gru", 4, 25_000 * 320, 4, 864_000_000),
        # PyTorch's benchmarks/dynamo/microbenchmarks, tts_angular_training.txt: 64 sequences of 50 steps, 768 units
        ("lstm", 1, 64 * 50 * 768, 2, 24_576_016),
    ],
)
def test_reserve_space_is_as_published(cell: str, layers: int, numbers: int, item: int, published: int) -> None:
    assert 0 <= published - reserve_bytes(cell, layers=layers, numbers=numbers, item=item) <= 16


@pytest.mark.parametrize(("kind", "states"), [("LSTM", 5), ("GRU", 6), ("RNN", 1)])
def test_a_gpu_keeps_gates_and_states_of_every_step(kind: str, states: int) -> None:
    assert made(trace(kind), "_cudnn_rnn")[:2] == sorted([states * STATES, STATES], reverse=True)
    both_ways = trace(kind, num_layers=3, bidirectional=True)
    assert kept_for_backward(both_ways) == 2 * (3 * states + 2) * STATES
    assert kept_for_backward(trace(kind, num_layers=3, bidirectional=True, packed=True)) == kept_for_backward(both_ways)


def test_the_reserve_space_lives_until_backward() -> None:
    timeline = trace("LSTM", num_layers=3, bidirectional=True)
    row = max(range(len(timeline.bytes)), key=lambda each: timeline.bytes[each])
    assert timeline.ops[timeline.op[row]] == "_cudnn_rnn"
    assert timeline.phase_at(int(timeline.born[row])) == "forward"
    assert timeline.phase_at(int(timeline.died[row]) - 1) == "backward"


def test_on_the_cpu_an_lstm_stays_with_one_dnn() -> None:
    ops = trace("LSTM", "cpu").ops
    assert "mkldnn_rnn_layer" in ops
    assert "_cudnn_rnn" not in ops


def test_autocast_halves_what_is_kept() -> None:
    assert 2 * kept_for_backward(trace("LSTM", precision="fp16")) == kept_for_backward(trace("LSTM"))


def test_gradients_are_those_of_the_weights() -> None:
    net = Net("LSTM", num_layers=2, bidirectional=True)
    weights = [weight.numel() for weight in net.parameters()]
    of_x, of_a_state = STEPS * SEQUENCES * INPUT, 2 * 2 * SEQUENCES * HIDDEN
    given = made(trace("LSTM", num_layers=2, bidirectional=True), "_cudnn_rnn_backward")
    assert given == sorted((4 * each for each in (of_x, of_a_state, of_a_state, *weights)), reverse=True)


@pytest.mark.parametrize(
    "how",
    [
        {"batch_first": True},
        {"bias": False},
        {"proj_size": 8},
        {"proj_size": 8, "bias": False},
        {"dropout": 0.5, "num_layers": 2},
        {"last": True, "batch_first": True},
    ],
    ids=str,
)
def test_every_form_of_an_lstm_is_traced(how: dict[str, Any]) -> None:
    ops = trace("LSTM", **how).ops
    assert "_cudnn_rnn_backward" in ops
    assert not any("mkldnn" in op for op in ops)


def test_an_output_with_sequences_first_lies_in_memory_by_time() -> None:
    seen: list[tuple[int, ...]] = []

    def loss(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
        out = net(x)
        seen.append((*out.shape, *out.stride()))
        return out.mean()

    traced(Pieces(lambda: Net("GRU", batch_first=True), lambda: torch.rand(SEQUENCES, STEPS, INPUT), loss))
    assert seen == [(SEQUENCES, STEPS, HIDDEN, HIDDEN, SEQUENCES * HIDDEN, 1)]


def test_the_upper_figure_leaves_room_for_what_cudnn_does_not_say() -> None:
    timeline = trace("LSTM", num_layers=3, bidirectional=True)
    told = build_forecast(timeline, devices.find_device("8GiB"), Runtime(), "net", Settings())
    assert NOTE in told.notes
    assert told.allocated.high >= told.allocated.expected + (WIDER - 1) * kept_for_backward(timeline)
    plain = build_forecast(traced(), devices.find_device("8GiB"), Runtime(), "net", Settings())
    assert NOTE not in plain.notes


def test_a_step_does_the_arithmetic_of_its_gates() -> None:
    forward = 2 * STEPS * SEQUENCES * 4 * HIDDEN * (INPUT + HIDDEN)
    assert sum(trace("LSTM").work.flops.tolist()) == 3 * forward
