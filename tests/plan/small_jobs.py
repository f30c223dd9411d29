"""Jobs that are quick to trace and large enough to matter: nothing of their size is ever computed."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy, gelu

from oomproof import TorchJob
from oomproof.memory.timeline import Timeline
from oomproof.plan.estimates.what_if import step_start
from oomproof.sources import open_job
from oomproof.sources.job import Job, Knob, Option, TraceRequest
from oomproof.sources.settings import resolve


class Residual(nn.Module):
    def __init__(self, width: int, norm: bool) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(width, width, 3, padding=1) for _ in range(2))
        self.norm = nn.BatchNorm2d(width) if norm else nn.GroupNorm(4, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.second(gelu(self.first(self.norm(x))))
        return x + y


def _convolutions(batch: int, side: int, width: int, blocks: int, norm: bool) -> TorchJob:
    def model() -> nn.Module:
        body = nn.Sequential(*(Residual(width, norm) for _ in range(blocks)))
        return nn.Sequential(nn.Conv2d(3, width, 3, padding=1), body, nn.AdaptiveAvgPool2d(1), nn.Flatten())

    return TorchJob(
        model=model,
        batch=lambda: (torch.rand(batch, 3, side, side), torch.zeros(batch, dtype=torch.long)),
        loss=lambda net, both: cross_entropy(net(both[0]), both[1]),
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=1e-3),
        mean_over_images=True,
        name="small",
    )


def images(batch: int = 16, side: int = 128, width: int = 32, blocks: int = 6) -> TorchJob:
    """A residual net whose gradients are a plain mean over images."""
    return _convolutions(batch, side, width, blocks, norm=False)


def normed(batch: int = 16, side: int = 128, width: int = 32, blocks: int = 6) -> TorchJob:
    """The same with batch normalisation: micro-batches are only equivalent."""
    return _convolutions(batch, side, width, blocks, norm=True)


def wide(batch: int = 8, width: int = 4096, layers: int = 6) -> TorchJob:
    """All weights and hardly any activations."""
    return TorchJob(
        model=lambda: nn.Sequential(
            *(layer for _ in range(layers) for layer in (nn.Linear(width, width), nn.GELU())), nn.Linear(width, 8)
        ),
        batch=lambda: torch.rand(batch, width),
        loss=lambda net, x: net(x).square().mean(),
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=1e-3),
        mean_over_images=True,
    )


def tokens(batch: int = 8, length: int = 256, width: int = 128, layers: int = 4) -> TorchJob:
    """A transformer encoder without dropout."""

    def model() -> nn.Module:
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
        return nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)

    return TorchJob(
        model=model, batch=lambda: torch.rand(batch, length, width), loss=lambda net, x: net(x).square().mean()
    )


class Squashed(nn.Module):
    """What goes into ``inner`` is kept by nobody unless it is computed again."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Sigmoid(), nn.Tanh(), nn.Sigmoid(), nn.GELU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.inner(x + 1)
        return y + 1


def squashed(batch: int = 8, width: int = 1 << 20, blocks: int = 4) -> TorchJob:
    return TorchJob(
        model=lambda: nn.Sequential(nn.Linear(1, 1), *(Squashed() for _ in range(blocks))),
        batch=lambda: torch.rand(batch, width, 1),
        loss=lambda net, x: net(x).square().mean(),
    )


class Counting(nn.Module):
    """Counts its calls, so it cannot be computed again; what is inside can."""

    seen: torch.Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = Residual(width, norm=False)
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen += 1
        y: torch.Tensor = self.inner(x)
        return y


def counting(batch: int = 8, side: int = 128, width: int = 32) -> TorchJob:
    """Segmentation with a loss module that is not part of the model and saves much."""
    loss = nn.CrossEntropyLoss()
    return TorchJob(
        model=lambda: nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1), *(Counting(width) for _ in range(3)), nn.Conv2d(width, 50, 1)
        ),
        batch=lambda: (torch.rand(batch, 3, side, side), torch.zeros(batch, side, side, dtype=torch.long)),
        loss=lambda net, both: loss(net(both[0]), both[1]),
    )


def asking(batch: int = 8, side: int = 128) -> TorchJob:
    """Looks at a value of every image, as detectors do."""

    def loss(net: nn.Module, both: Any) -> torch.Tensor:
        assert all(float(image[0, 0, 0]) >= 0 for image in both[0])
        return cross_entropy(net(both[0]), both[1])

    plain = images(batch, side)
    return TorchJob(model=plain.model, batch=plain.batch, optimizer=plain.optimizer, loss=loss)


def choosing(batch: int = 12, side: int = 32) -> TorchJob:
    """Chooses pixels of every image, as detectors choose boxes: one value asked for an image."""

    def loss(net: nn.Module, both: Any) -> torch.Tensor:
        chosen = sum(image[image > 0.5].mean() for image in both[0])
        return cross_entropy(net(both[0]), both[1]) + 0 * chosen

    plain = images(batch, side)
    return TorchJob(model=plain.model, batch=plain.batch, optimizer=plain.optimizer, loss=loss)


def own_step(batch: int = 16, side: int = 64) -> TorchJob:
    """Two updates in one step, the second small: whoever writes this decides about memory."""

    def step(net: nn.Module, both: Any, optimizer: torch.optim.Optimizer) -> None:
        for part in (slice(None), slice(0, 1)):
            optimizer.zero_grad()
            net(both[0][part]).square().mean().backward()
            optimizer.step()

    plain = images(batch, side)
    return TorchJob(model=plain.model, batch=plain.batch, optimizer=plain.optimizer, step=step, name="own")


def unnamed(count: int = 16) -> TorchJob:
    """No parameter says how many images there are."""
    return images(count)


def opened(name: str) -> Job:
    """A job of this file, or one of torchvision's by its whole name."""
    return open_job(name if ":" in name else f"{__file__}:{name}")


def traced(name: str, **settings: Any) -> Timeline:
    job = opened(name)
    return job.trace(TraceRequest(resolve(job, settings)))


def peak(step: Timeline) -> int:
    """Of the steady step."""
    return int(step.curve()[step_start(step) :].max())


def stepping(images: int = 16, side: int = 128, width: int = 32) -> TorchJob:
    """A step of its own, and a knob that goes down to one image, with which batch normalisation cannot train."""

    def step(net: nn.Module, x: torch.Tensor, optimizer: torch.optim.Optimizer) -> None:
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()

    sizes = tuple(Option(size, {"images": size}) for size in (images, images // 4, 1))
    return TorchJob(
        model=lambda: nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1), nn.GELU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.BatchNorm1d(width)
        ),
        batch=lambda: torch.rand(images, 3, side, side),
        step=step,
        extra_knobs=(Knob("images", sizes, "equivalent", "fewer images a step"),),
    )
