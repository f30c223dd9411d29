"""Kernels that copy arguments which are not laid out as they read them, and others that PyTorch writes in tensors: as
the CPU does it against its allocator, as a GPU does it by PyTorch's own arithmetic (2.14), by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torchvision
from real_cpu import second_step
from torch import nn
from torch.nn import functional as F

from oomproof.api.check import forecast_step
from oomproof.changes.torch.training import Training
from oomproof.memory.cards.devices import find_device
from oomproof.memory.scratch import cuda
from oomproof.memory.scratch.calls import Convolution, read_call
from oomproof.memory.settings import Settings
from oomproof.memory.timeline import Timeline
from oomproof.trace.torch.gpu.laid_out import laid_out
from oomproof.trace.torch.loop import Pieces
from oomproof.trace.torch.trace_step import trace_step

GPU = find_device("RTX 3090")
SHAPE = (8, 16, 24, 32)
NUMBERS = 8 * 16 * 24 * 32


class Scaled(nn.Module):
    """A layer that takes no scratch of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(1))

    def forward(self, x: torch.Tensor) -> Any:
        return x * self.weight


def job(loss: Callable[[torch.Tensor], Any], shape: tuple[int, ...] = SHAPE) -> Pieces:
    return Pieces(Scaled, lambda: torch.rand(shape), lambda model, x: loss(model(x)))


def crossed(x: torch.Tensor) -> torch.Tensor:
    return x.transpose(1, 3)


BOXES = torch.tensor([[0.0, 0, 0, 9, 9]] * 4)
FORWARD: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "softmax": lambda x: crossed(x).softmax(-1),
    "layer norm": lambda x: F.layer_norm(crossed(x), (16,)),
    "group norm": lambda x: F.group_norm(x.transpose(0, 1), 4),
    "maxima": lambda x: F.max_pool2d(x.transpose(0, 1), 2, return_indices=True)[0],
    "means": lambda x: F.avg_pool2d(x.transpose(0, 1), 2),
    "means of parts": lambda x: F.adaptive_avg_pool2d(x.transpose(0, 1), 12),
    "maxima of parts": lambda x: F.adaptive_max_pool2d(x.transpose(0, 1), 12, return_indices=True)[0],
    "regions": lambda x: torchvision.ops.roi_align(crossed(x), BOXES, 7),
    "reflected": lambda x: F.pad(crossed(x), (2, 2, 2, 2), "reflect"),
    "distances by a product": lambda x: torch.cdist(x.flatten(0, 1), x.flatten(0, 1)),
    "every other column multiplied": lambda x: x.view(-1, 32)[:, ::2] @ torch.ones(16, 4),
    "rolled along both sides": lambda x: x.roll((2, 2), (2, 3)),
    "means by index": lambda x: torch.zeros(SHAPE).scatter_reduce(1, PLACES, x, "mean"),
}
PLACES = torch.zeros(SHAPE, dtype=torch.int64)
BACKWARD: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "softmax": lambda x: x.softmax(-1),
    "cross entropy of tokens": lambda x: F.cross_entropy(
        x.flatten(2).transpose(1, 2), torch.zeros(8, 16, dtype=torch.int64)
    ),
    "layer norm": lambda x: F.layer_norm(crossed(x), (16,)),
    "reflected": lambda x: F.pad(crossed(x), (2, 2, 2, 2), "reflect"),
    "enlarged": lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"),
}
JOBS = {
    **{f"{name}, forward": job(lambda x, run=run: x.sum() + run(x.detach()).sum()) for name, run in FORWARD.items()},  # type: ignore[misc]
    **{f"{name}, backward": job(lambda x, run=run: run(x).sum()) for name, run in BACKWARD.items()},  # type: ignore[misc]
}


@pytest.mark.parametrize("name", JOBS)
def test_the_cpu_holds_the_copies_too(name: str) -> None:
    forecast = forecast_step(trace_step(JOBS[name], Training(), dialect="cpu"), find_device("64GiB"), Settings({}))
    real = second_step(JOBS[name], Training()).peak
    assert forecast.allocated.expected == pytest.approx(real, rel=0.01), (forecast.phase, forecast.op)


def traced(loss: Callable[[torch.Tensor], Any], shape: tuple[int, ...] = SHAPE, **training: Any) -> Timeline:
    return trace_step(job(loss, shape), Training(**training))


def prices(step: Timeline, op: str) -> list[tuple[int, int, int]]:
    calls = [read_call(text) for text in step.calls.specs]
    return [cuda.price(GPU)(call) for call in calls if getattr(call, "op", "") == op]


@pytest.mark.parametrize(("precision", "item"), [("fp32", 4), ("fp16", 4), ("bf16", 4)])
def test_a_gpu_multiplies_a_softmax_by_its_gradient_first(precision: str, item: int) -> None:
    """``tmp = grad * output`` in softmax_backward_cuda_out; under autocast a softmax is in fp32."""
    step = traced(lambda x: x.softmax(-1).pow(2).mean(), precision=precision)
    assert prices(step, "_softmax_backward_data") == [(NUMBERS * item,) * 3]


def test_attention_written_out_takes_that_at_its_peak() -> None:
    images, heads, rows = 4, 8, 256

    def attend(x: torch.Tensor) -> Any:
        return ((x @ x.transpose(-1, -2)).softmax(-1) @ x).pow(2).mean()

    scores = images * heads * rows * rows * 4
    forecast = forecast_step(traced(attend, (images, heads, rows, 16)), GPU, Settings({}))
    assert forecast.op == "_softmax_backward_data"
    assert (
        forecast.allocated.expected > 4 * scores
    )  # of the scores: result, its gradient, the product, and what is made


def test_a_gpu_reads_group_norms_channels_first() -> None:
    step = traced(lambda x: F.group_norm(x.to(memory_format=torch.channels_last), 4).pow(2).mean())
    assert prices(step, "native_group_norm") == [(NUMBERS * 4, 0, NUMBERS * 4)]


@pytest.mark.parametrize(("cut", "copied"), [
    (lambda x: x[..., ::2], True),
    (lambda x: x[..., :8], False),
    (lambda x: x[..., :8].transpose(1, 2), False),
])  # fmt: skip
def test_matrices_in_a_batch_are_copied_where_neither_side_is_dense(cut: Any, copied: bool) -> None:
    step = traced(lambda x: x.mean() + (cut(x.detach()) @ torch.ones(32, cut(x).shape[-1], 4)).sum(), (32, 64, 16))
    assert prices(step, "bmm") == [(32 * 64 * 8 * 4,) * 3] * copied


def test_what_is_dense_is_not_copied() -> None:
    last = torch.rand(SHAPE).to(memory_format=torch.channels_last)
    assert laid_out("max_pool2d_with_indices", (last, [2, 2])) is None
    assert laid_out("_softmax", (torch.rand(SHAPE), 1, False)) is None
    assert laid_out("native_layer_norm_backward", (torch.rand(SHAPE), torch.rand(SHAPE))) is None


def test_a_gradient_whose_channels_come_last_is_copied_for_a_convolution() -> None:
    """Patches become tokens by a transposition, and so does their gradient."""
    pieces = Pieces(
        lambda: nn.Conv2d(3, 32, 4, 4), lambda: torch.rand(8, 3, 64, 64),
        lambda model, x: model(x).flatten(2).transpose(1, 2).square().mean(),
    )  # fmt: skip
    calls = [read_call(text) for text in trace_step(pieces, Training()).calls.specs]
    copied = {bool(call.wants): call.copied for call in calls if isinstance(call, Convolution)}
    assert copied == {False: 0, True: 8 * 32 * 16 * 16 * 4}
