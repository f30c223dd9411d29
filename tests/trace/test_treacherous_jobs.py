"""Jobs whose memory is easily missed, traced as the CPU does them, against the real CPU allocator: scratch that kernels
write in tensors of their own, gradients that are written out, transforms of functions, history of optimizers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torchvision
from real_cpu import second_step
from torch import nn
from torch.func import functional_call, grad, jacrev, vmap
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.utils.parametrizations import orthogonal

from oomproof.api.check import forecast_step
from oomproof.changes.torch.training import Training
from oomproof.errors import JobError
from oomproof.memory.cards.devices import find_device
from oomproof.memory.forecast import Forecast
from oomproof.memory.scratch import cuda
from oomproof.memory.scratch.calls import read_call
from oomproof.memory.settings import Settings
from oomproof.memory.timeline import Timeline
from oomproof.trace.torch.loop import Pieces
from oomproof.trace.torch.trace_step import trace_step

GPU = find_device("RTX 3090")


class Deformed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.offsets = nn.Conv2d(16, 18, 3, padding=1)
        self.deformed = torchvision.ops.DeformConv2d(16, 32, 3, padding=1)

    def forward(self, x: torch.Tensor) -> Any:
        return self.deformed(x, self.offsets(x))


def attend_written_out(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        return F.scaled_dot_product_attention(x, x, x)


class Squares(nn.Module):
    """A layer that takes no scratch of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight


def mlp(rows: int = 512) -> nn.Module:
    return nn.Sequential(nn.Linear(256, rows), nn.ReLU(), nn.Linear(rows, 256))


def images(count: int, channels: int, side: int) -> Callable[[], torch.Tensor]:
    return lambda: torch.rand(count, channels, side, side)


def of_each_row(model: nn.Module, x: torch.Tensor) -> Any:
    weights = dict(model.named_parameters())
    one = lambda weights, row: functional_call(model, weights, (row[None],)).pow(2).mean()  # noqa: E731
    return vmap(one, in_dims=(None, 0))(weights, x).sum()


def update_by_row(model: nn.Module, x: torch.Tensor, optimizer: torch.optim.Optimizer) -> None:
    """Gradients of every row by themselves, as private training has them."""
    optimizer.zero_grad()
    weights = {name: each.detach() for name, each in model.named_parameters()}
    one = lambda weights, row: functional_call(model, weights, (row[None],)).pow(2).mean()  # noqa: E731
    found = vmap(grad(one), in_dims=(None, 0))(weights, x)
    for name, each in model.named_parameters():
        each.grad = found[name].mean(0)
    optimizer.step()


JOBS = {
    "deformable convolution": Pieces(Deformed, images(4, 16, 48), lambda m, x: m(x).pow(2).mean()),
    "deformable, seven images": Pieces(Deformed, images(7, 16, 32), lambda m, x: m(x).sum()),
    "sum after a linear layer": Pieces(mlp, lambda: torch.rand(4096, 256), lambda m, x: m(x).sum()),
    "sum after a convolution": Pieces(
        lambda: nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1)),
        images(4, 3, 64),
        lambda m, x: m(x).sum(),
    ),
    "sum after channels by themselves": Pieces(
        lambda: nn.Sequential(nn.Conv2d(16, 32, 3, padding=1), nn.Conv2d(32, 32, 3, padding=1, groups=32)),
        images(4, 16, 64),
        lambda m, x: m(x).sum(),
    ),
    # The loss keeps the memory that it was reduced in, and what folds are made of stays with them.
    "mean squared error": Pieces(Squares, images(4, 16, 64), lambda m, x: F.mse_loss(m(x), x)),
    "smooth loss": Pieces(Squares, images(4, 16, 64), lambda m, x: F.smooth_l1_loss(m(x), x, reduction="sum")),
    "cross entropy of two": Pieces(Squares, images(4, 16, 64), lambda m, x: F.binary_cross_entropy(m(x).sigmoid(), x)),
    "margins": Pieces(Squares, images(4, 16, 64), lambda m, x: F.soft_margin_loss(m(x), x)),
    "folds": Pieces(
        Squares,
        images(4, 16, 32),
        lambda m, x: F.fold(F.unfold(m(x), 3, padding=1), (32, 32), 3, padding=1).pow(2).mean(),
    ),
    "attention of a teacher": Pieces(
        Squares, lambda: torch.rand(2, 4, 256, 16), lambda m, x: m(x).mean() + attend_written_out(x).mean()
    ),
    "vmap": Pieces(mlp, lambda: torch.rand(512, 256), of_each_row),
    "gradients of every row": Pieces(lambda: mlp(64), lambda: torch.rand(32, 256), None, step=update_by_row),
    "Jacobian": Pieces(
        lambda: nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 16)),
        lambda: torch.rand(64, 32),
        lambda m, x: jacrev(lambda each: m(each).mean(0))(x).pow(2).mean(),
    ),
}


def traced(pieces: Pieces) -> Forecast:
    return forecast_step(trace_step(pieces, Training(), dialect="cpu"), find_device("64GiB"), Settings({}))


@pytest.mark.parametrize("name", JOBS)
def test_the_trace_is_what_the_allocator_holds(name: str) -> None:
    forecast, real = traced(JOBS[name]), second_step(JOBS[name], Training()).peak
    assert forecast.allocated.expected == pytest.approx(real, rel=0.01), (forecast.owner, forecast.op)


def test_a_matrix_exponential_takes_at_most_what_is_priced() -> None:
    """Which polynomial it takes, and so its scratch, depends on the norm of the matrix."""
    pieces = Pieces(lambda: orthogonal(nn.Linear(256, 256)), lambda: torch.rand(64, 256), lambda m, x: m(x).mean())
    forecast, real = traced(pieces), second_step(pieces, Training()).peak
    assert forecast.allocated.low <= real <= forecast.allocated.expected <= 1.4 * real
    weights = 256 * 256 * 4
    assert real > 30 * weights  # most of it is scratch


def prices(step: Timeline, *ops: str) -> list[tuple[int, int, int]]:
    calls = [read_call(text) for text in step.calls.specs]
    return [cuda.price(GPU)(call) for call in calls if getattr(call, "op", "") in ops]


def test_a_gpu_lays_out_the_same_columns() -> None:
    found = prices(trace_step(JOBS["deformable convolution"], Training()), "deform_conv2d", "_deform_conv2d_backward")
    columns, result = 16 * 9 * 4 * 48 * 48 * 4, 4 * 32 * 48 * 48 * 4
    assert found == [(columns + result,) * 3] * 2


def test_transforms_and_factorisations_have_work_areas_on_a_gpu() -> None:
    class Spectra(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(8, 8))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            spectra = torch.fft.rfft2(x @ self.weight)
            return torch.fft.irfft2(spectra).sum() + torch.linalg.svdvals(self.weight).sum()

    step = trace_step(Pieces(Spectra, lambda: torch.rand(16, 8, 8), lambda m, x: m(x)), Training())
    signal, matrix = 16 * 8 * 5 * 8, 8 * 8 * 4
    assert (signal, 0, 3 * signal) in prices(step, "_fft_r2c", "_fft_c2r")
    assert prices(step, "_linalg_svd") == [(matrix, 0, 4 * matrix)]


def test_lbfgs_remembers_all_its_updates() -> None:
    def step(model: nn.Module, x: torch.Tensor, optimizer: torch.optim.Optimizer) -> None:
        def closure() -> Any:
            optimizer.zero_grad()
            loss = model(x).pow(2).mean()
            loss.backward()
            return loss

        optimizer.step(closure)

    def peak(history: int) -> int:
        make = lambda weights: torch.optim.LBFGS(  # noqa: E731
            list(weights), max_iter=6, history_size=history, tolerance_grad=0, tolerance_change=0
        )
        pieces = Pieces(mlp, lambda: torch.rand(8, 256), None, make, step)
        found = traced(pieces).allocated.expected
        if history < 10:  # full after two steps of six iterations
            real = second_step(pieces, Training()).peak
            assert real <= found <= 1.2 * real
        return found

    weights = sum(each.nbytes for each in mlp().parameters())
    assert peak(100) - peak(3) == pytest.approx(97 * 2 * weights, rel=0.01)


@pytest.mark.parametrize(
    ("pieces", "words"),
    [
        (Pieces(lambda: nn.LazyLinear(4), lambda: torch.rand(2, 8), lambda m, x: m(x).sum()), "lazy layer.*its sizes"),
        (
            Pieces(
                lambda: nn.Linear(8, 8),
                lambda: torch.rand(4, 8),
                lambda m, x: torch.nested.as_nested_tensor([m(x), m(x[:2])], layout=torch.jagged).values().sum(),
            ),
            "nested tensors.*pad",
        ),
    ],
    ids=["lazy", "nested"],
)
def test_what_is_not_traced_is_told_with_what_to_do(pieces: Pieces, words: str) -> None:
    with pytest.raises(JobError, match=words):
        trace_step(pieces, Training())
