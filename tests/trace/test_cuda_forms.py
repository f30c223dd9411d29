"""Operations that a CPU build sends to other kernels than CUDA does: cells, CTC, embedding bags, channel shuffles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from oomproof.changes.torch.training import Training
from oomproof.memory.cards import devices
from oomproof.memory.scratch import cuda
from oomproof.memory.scratch.calls import Kernel, read_call
from oomproof.memory.timeline import Timeline
from oomproof.trace.torch.gpu.dialect import Dialect
from oomproof.trace.torch.loop import Pieces
from oomproof.trace.torch.trace_step import trace_step

ROWS, UNITS = 16, 32


def traced(model: Callable[[], nn.Module], batch: Callable[[], Any], loss: Any, dialect: Dialect = "cuda") -> Timeline:
    return trace_step(Pieces(model, batch, loss), Training(), dialect=dialect)


def unrolled(cell: str, steps: int, dialect: Dialect = "cuda", **how: Any) -> Timeline:
    def loss(model: Any, x: torch.Tensor) -> torch.Tensor:
        state = None
        for _ in range(steps):
            state = model(x, state)
        return (state[0] if isinstance(state, tuple) else state).sum()  # type: ignore[no-any-return, index, union-attr]

    return traced(lambda: getattr(nn, cell)(UNITS, UNITS, **how), lambda: torch.rand(ROWS, UNITS), loss, dialect)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("cell", "numbers"), [
    ("LSTMCell", 4 + 4 + 4 + 2),  # gates of the input, of the hidden state, the workspace; both states
    ("GRUCell", 3 + 3 + 5 + 1),
])  # fmt: skip
def test_a_gpu_keeps_both_gates_and_a_workspace_of_every_step(cell: str, numbers: int, bias: bool) -> None:
    kept = unrolled(cell, 60, bias=bias).peak().bytes - unrolled(cell, 40, bias=bias).peak().bytes
    assert kept == 20 * numbers * ROWS * UNITS * 4


@pytest.mark.parametrize("cell", ["LSTMCell", "GRUCell"])
def test_the_cpu_keeps_its_own_form(cell: str) -> None:
    assert not any("fused" in op for op in unrolled(cell, 3, "cpu").ops)
    assert any("fused" in op for op in unrolled(cell, 3).ops)


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_cells_run_in_half_precision_under_autocast(precision: str) -> None:
    pieces = Pieces(
        lambda: nn.LSTMCell(UNITS, UNITS), lambda: torch.rand(ROWS, UNITS), lambda model, x: model(x)[0].float().sum()
    )
    step = trace_step(pieces, Training(precision=precision))
    gates = step.bytes[step.op == step.ops.index("_thnn_fused_lstm_cell")].max()
    assert gates == 4 * ROWS * UNITS * 2


def kernels(step: Timeline, op: str) -> list[Kernel]:
    every = [read_call(text) for text in step.calls.specs]
    return [call for call in every if isinstance(call, Kernel) and call.op == op]


def test_ctc_has_a_second_table_in_backward() -> None:
    steps, classes, longest = 50, 20, 30
    step = traced(
        lambda: nn.Linear(classes, classes),
        lambda: torch.rand(steps, ROWS, classes),
        lambda model, x: F.ctc_loss(
            model(x).log_softmax(2),
            torch.ones(ROWS, longest, dtype=torch.int64),
            torch.full((ROWS,), steps),
            torch.full((ROWS,), longest),
        ),
    )
    [call] = kernels(step, "_ctc_loss_backward")
    table = ROWS * steps * (2 * longest + 1) * 4
    assert cuda.price(devices.find_device("RTX 3090"))(call) == (table, table, table)


@pytest.mark.parametrize(("mode", "sorts"), [("sum", True), ("mean", True), ("max", False)])
def test_bags_are_sorted_as_tables_are(mode: str, sorts: bool) -> None:
    step = traced(
        lambda: nn.EmbeddingBag(1000, 64, mode=mode), lambda: torch.randint(0, 1000, (32, 10)), lambda m, x: m(x).sum()
    )
    found = kernels(step, "embedding_dense_backward")
    assert [call.elements for call in found] == ([320] if sorts else [])


class Shuffled(nn.Module):
    def __init__(self, written_out: bool) -> None:
        super().__init__()
        self.conv, self.written_out = nn.Conv2d(8, 8, 1), written_out

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv(x)
        if not self.written_out:
            return F.channel_shuffle(y, 2)
        images, channels, height, width = y.shape
        # math_channel_shuffle in aten/src/ATen/native/ChanelShuffle.cpp, which is CUDA's
        return y.view(images, 2, channels // 2, height, width).permute(0, 2, 1, 3, 4).contiguous().view(y.shape)


def test_a_channel_shuffle_takes_what_its_cuda_form_takes() -> None:
    peaks = {
        traced(lambda each=each: Shuffled(each), lambda: torch.rand(4, 8, 64, 64), lambda m, x: m(x).square().sum())
        .peak()
        .bytes
        for each in (True, False)
    }
    assert len(peaks) == 1
