"""Fewer channels: what goes changes nothing where it was nothing, what the loss sees keeps its size, and it trains."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torchvision.ops import FrozenBatchNorm2d

from oomproof.api.check import forecast_step
from oomproof.changes.torch.slim import slim, slim_factory
from oomproof.changes.torch.training import training_from
from oomproof.errors import InputError
from oomproof.memory.cards.devices import find_device
from oomproof.memory.settings import Settings
from oomproof.sources.settings import resolve
from oomproof.sources.torch.job import TorchJob
from oomproof.sources.torchvision.job import open_torchvision
from oomproof.trace.torch.loop import Loop, Pieces
from oomproof.trace.torch.trace_step import trace_step
from oomproof.trace.torch.tracer import Tracer
from thorough import thorough_but

sys.path.append(str(Path(__file__).parent.parent / "trace"))
from real_cpu import second_step


class Net(nn.Module):
    """A stem, a residual block with a depthwise convolution, flattening and two linear layers."""

    def __init__(self, norm: Callable[[int], nn.Module] = nn.BatchNorm2d) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 16, 3, padding=1, bias=False), norm(16)
        self.up, self.up_norm = nn.Conv2d(16, 32, 1, bias=False), norm(32)
        self.each, self.down = nn.Conv2d(32, 32, 3, padding=1, groups=32, bias=False), nn.Conv2d(32, 16, 1, bias=False)
        self.inner, self.scores = nn.Linear(16 * 4 * 4, 24), nn.Linear(24, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.norm(self.stem(x)))
        x = x + self.down(torch.relu(self.each(torch.relu(self.up_norm(self.up(x))))))
        x = nn.functional.max_pool2d(x, 2).flatten(1)
        return self.scores(torch.relu(self.inner(x)))


def images() -> torch.Tensor:
    return torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def run(net: nn.Module) -> torch.Tensor:
    return net(torch.rand(2, 3, 8, 8))


def narrow(net: nn.Module, factor: float = 0.5) -> nn.Module:
    return slim(net, run, factor, Tracer)


def shapes(net: nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in net.state_dict().items()}


@pytest.mark.parametrize("norm", [nn.BatchNorm2d, FrozenBatchNorm2d], ids=["batch", "frozen"])
def test_without_its_dead_channels_a_net_computes_the_same(norm: Callable[[int], nn.Module]) -> None:
    torch.manual_seed(0)
    net = Net(norm).eval()
    dead = {"stem": 16, "up": 32, "down": 16, "inner": 24}
    with torch.no_grad():
        for name, width in dead.items():
            chosen = torch.randperm(width, generator=torch.Generator().manual_seed(width))
            net.get_submodule(name).weight[chosen[: width // 2]] = 0
        net.inner.bias[torch.randperm(24, generator=torch.Generator().manual_seed(24))[:12]] = 0
        for norm_layer in (net.norm, net.up_norm):  # any other than the identity: all channels differ
            norm_layer.running_var.copy_(torch.rand(len(norm_layer.running_var)) + 0.5)
        wanted = net(images())
        narrow(net)
        assert torch.allclose(net(images()), wanted, atol=1e-6)
    assert net.stem.weight.shape == (8, 3, 3, 3)
    assert net.each.weight.shape == (16, 1, 3, 3)
    assert net.inner.weight.shape == (12, 8 * 4 * 4)
    assert net.scores.weight.shape == (5, 12)
    assert all(len(buffer) == 8 for buffer in net.norm.buffers() if buffer.dim())


def test_sections_of_channels_stay_equal() -> None:
    net = nn.Sequential(nn.Conv2d(3, 24, 1), nn.GroupNorm(4, 24), nn.Conv2d(24, 24, 1, groups=8), nn.Conv2d(24, 4, 1))
    narrow(net, 0.4)
    assert net[1].weight.shape == (8,)  # not 10 of 24: one of three in each of eight sections
    assert net[2].weight.shape == (8, 1, 1, 1)
    assert net(images()).shape == (2, 4, 8, 8)


def test_nothing_but_the_width_changes() -> None:
    net = Net()
    net.stem.requires_grad_(False)
    net.norm.eval()
    with torch.no_grad():
        net.norm.running_mean.copy_(torch.arange(16))
    narrow(net, 0.25)
    assert not net.stem.weight.requires_grad
    assert net.up.weight.requires_grad
    assert net.training and not net.norm.training
    assert len(net.norm.running_mean) == 4
    assert all(float(mean).is_integer() for mean in net.norm.running_mean)  # a forward pass would have moved it
    assert not any(isinstance(tensor, FakeTensor) for tensor in net.state_dict().values())


def test_the_forward_pass_takes_no_memory() -> None:
    seen: list[torch.Tensor] = []

    def vast(net: nn.Module) -> torch.Tensor:
        seen.append(torch.rand(100_000, 3, 8, 8))
        return net(seen[-1])

    slim(Net(), vast, 0.5, Tracer)
    assert all(isinstance(tensor, FakeTensor) for tensor in seen)


def test_a_trace_gets_the_same_net() -> None:
    make = slim_factory(Net, run, 0.5, Tracer)
    real = make()
    with Tracer():
        fake = make()
        assert all(isinstance(parameter, FakeTensor) for parameter in fake.parameters())
    assert shapes(fake) == shapes(real) != shapes(Net())


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.attend = nn.Linear(8, 16), nn.MultiheadAttention(16, 4, batch_first=True)
        self.up, self.down = nn.Linear(16, 64), nn.Linear(64, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed(x)
        return self.down(torch.relu(self.up(x + self.attend(x, x, x)[0])))


def test_attention_keeps_its_heads() -> None:
    net = Attention()
    slim(net, lambda net: net(torch.rand(2, 5, 8)), 0.5, Tracer)
    assert net.attend.in_proj_weight.shape == (48, 16)
    assert (net.up.out_features, net.down.in_features) == (32, 32)
    assert net(torch.rand(2, 5, 8)).shape == (2, 5, 3)


def test_shared_weights_stay_shared() -> None:
    net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 6), nn.Linear(6, 2))
    net[2].weight = net[0].weight
    slim(net, lambda net: net(torch.rand(4, 8)), 0.5, Tracer)
    assert net[2].weight is net[0].weight
    assert (net[4].weight.shape, net[5].weight.shape) == ((3, 8), (2, 3))


class FixedView(nn.Module):
    """Whose code names a number of channels."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 12, 1), nn.Conv2d(12, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        return self.last(x.view(len(x), 3, 4, 8, 8).transpose(1, 2).reshape(len(x), 12, 8, 8))


@pytest.mark.parametrize(
    ("net", "factor", "told"),
    [
        (Net, 0.0, "width=0.0: expected the part of the channels that stays"),
        (Net, 1.5, "width=1.5: expected the part of the channels that stays"),
        (lambda: nn.Conv2d(3, 4, 1), 0.5, "width=0.5: the model has no inner convolution or linear layer"),
        (FixedView, 0.5, "in a way that torch-pruning does not find"),
    ],
)
def test_what_cannot_be_done(net: Callable[[], nn.Module], factor: float, told: str) -> None:
    with pytest.raises(InputError) as error:
        narrow(net(), factor)
    assert told in str(error.value)
    assert "\n" not in str(error.value)


def test_a_net_that_fails_wide_fails_as_itself() -> None:
    with pytest.raises(RuntimeError, match="channels"):
        narrow(nn.Sequential(nn.Conv2d(4, 8, 1), nn.Conv2d(8, 2, 1)))


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch_pruning", None)
    with pytest.raises(InputError, match=r"pip install 'oomproof\[prune\]'"):
        narrow(Net())


# -- real models -------------------------------------------------------------------------------------------------

SMALL: dict[str, Any] = {"batch": 2, "image_size": (96, 96)}
MODELS: dict[str, dict[str, Any]] = {
    "mobilenet_v2": SMALL,
    "convnext_tiny": SMALL,
    "deeplabv3_resnet50": SMALL,
    "maskrcnn_resnet50_fpn": SMALL,
    "fcos_resnet50_fpn": SMALL,
    "ssd300_vgg16": {"batch": 1},
}


def job_of(name: str, given: dict[str, Any]) -> tuple[TorchJob, Settings]:
    job = open_torchvision(name)
    settings = resolve(job, given)
    return job.with_settings(settings), settings


def narrow_pieces(job: TorchJob, factor: float) -> Pieces:
    assert job.loss is not None
    loss = job.loss
    return Pieces(slim_factory(job.model, lambda net: loss(net, job.batch()), factor, Tracer), job.batch, loss)


@pytest.mark.slow
@pytest.mark.parametrize("name", thorough_but(["mobilenet_v2", "fcos_resnet50_fpn"], MODELS))
def test_models_step_at_half_width(name: str) -> None:
    torch.manual_seed(0)
    job, settings = job_of(name, MODELS[name])
    wide = sum(parameter.numel() for parameter in job.model().parameters())
    loop = Loop(narrow_pieces(job, 0.5), training_from(settings))
    assert sum(parameter.numel() for parameter in loop.model.parameters()) < 0.36 * wide  # the square, and the outputs
    loop.load()
    loop.step()
    assert all(torch.isfinite(parameter).all() for parameter in loop.model.parameters())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("resnet50", {"batch": 8, "image_size": (160, 160)}),
        pytest.param(
            "retinanet_resnet50_fpn",
            {"batch": 1, "image_size": (256, 256), "weights": "none", "boxes": 20},
            marks=pytest.mark.thorough,
        ),
    ],
)
def test_a_narrow_step_as_the_real_allocator_has_it(name: str, given: dict[str, Any]) -> None:
    job, settings = job_of(name, given)
    training = training_from(settings)
    wide = trace_step(Pieces(job.model, job.batch, job.loss), training, dialect="cpu")
    timeline = trace_step(narrow_pieces(job, 0.5), training, dialect="cpu")
    kinds, before = timeline.by_kind(timeline.peak().tick), wide.by_kind(wide.peak().tick)
    assert 0.25 < kinds["parameter"] / before["parameter"] < 0.28  # a layer has half of the rows and of the columns
    assert 0.45 < kinds["activation"] / before["activation"] < 0.75  # those of the loss keep their size

    real = second_step(narrow_pieces(job, 0.5), training).peak
    told = forecast_step(timeline, find_device("64GiB"), settings).allocated
    assert told.expected == pytest.approx(real, rel=0.01)
    assert told.low <= real <= told.high


@pytest.mark.thorough
@pytest.mark.slow
def test_a_narrow_net_learns() -> None:
    torch.manual_seed(0)
    job, settings = job_of("retinanet_resnet50_fpn", {"batch": 1, "image_size": (96, 96), "boxes": 3, "classes": 5})
    settings = settings.with_values({"optimizer": "adamw"})
    assert job.loss is not None
    loop = Loop(narrow_pieces(job, 0.5), training_from(settings))
    loop.load()
    losses = []
    for steps in (12, 0):
        with torch.no_grad():
            losses.append(sum(job.loss(loop.model, loop.batch).values()).item())
        for _ in range(steps):
            loop.step()
    assert losses[1] < 0.95 * losses[0]
