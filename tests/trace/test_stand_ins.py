"""Nothing is left behind: after a trace PyTorch is what it was before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed.tensor  # joins the foreach types when it is first imported, which a trace may do
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.modules import module as modules
from torch.optim import optimizer as optimizers
from torch.optim import swa_utils
from torch.utils import _foreach_utils as foreach

from oomproof.changes.torch.training import Training
from oomproof.errors import JobError
from oomproof.trace.torch.loop import Pieces
from oomproof.trace.torch.trace_step import trace_step


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 6), nn.LayerNorm(6), nn.Dropout(0.5), nn.Linear(6, 2))


def traced(loss: Callable[[Any, Any], Any] = lambda model, x: model(x).softmax(1).exp().sum()) -> None:
    pieces = Pieces(net, lambda: torch.rand(4, 6), loss)
    trace_step(pieces, Training(precision="fp16", ema=True, optimizer="adam"))


def failing(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    model(x)
    raise ValueError("their mistake")


def broken() -> None:
    with pytest.raises(JobError, match="their mistake"):
        traced(failing)


def patched() -> dict[str, Any]:
    """Everything that stand-ins and dialects put something else in place of."""
    own = {
        f"FakeTensor.{name}": FakeTensor.__dict__.get(name) for name in ("numpy", "tolist", "__array__", "cuda", "to")
    }
    return own | {
        "FakeTensor.__deepcopy__": FakeTensor.__dict__.get("__deepcopy__"),
        "Module._apply": nn.Module._apply,
        "autocast": torch.amp.autocast.__init__,
        "GradScaler": torch.amp.GradScaler.__init__,
        "foreach types": list(optimizers._foreach_supported_types),
        "foreach types of clipping": list(foreach._foreach_supported_types),
        "foreach devices": optimizers._get_foreach_kernels_supported_devices,
        "foreach devices of averages": swa_utils._get_foreach_kernels_supported_devices,
        "module hooks": (len(modules._global_forward_pre_hooks), len(modules._global_forward_hooks)),
        "optimizer hooks": (len(optimizers._global_optimizer_pre_hooks), len(optimizers._global_optimizer_post_hooks)),
        **{f"init.{name}": value for name, value in vars(nn.init).items() if name.endswith("_") and callable(value)},
    }


def kernels() -> set[str]:
    return {
        f"{key} {name}"
        for key in ("AutocastCPU", "AutogradCPU")
        for name in torch._C._dispatch_get_registrations_for_dispatch_key(key)
    }


@pytest.mark.parametrize("trace", [pytest.param(traced, marks=pytest.mark.thorough), broken])
def test_everything_is_put_back(trace: Callable[[], None]) -> None:
    before, kernels_before = patched(), kernels()
    trace()
    assert patched() == before
    assert kernels() == kernels_before
    assert torch.utils._python_dispatch._get_current_dispatch_mode() is None


def autocast_dtypes() -> list[torch.dtype]:
    x = torch.rand(4, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = x @ x
        return [y.dtype for y in (half, half.softmax(1), half.exp(), half.sum(), nn.functional.layer_norm(half, (4,)))]


@pytest.mark.thorough
@pytest.mark.parametrize("trace", [traced, broken])
def test_cpu_autocast_is_the_cpus_again(trace: Callable[[], None]) -> None:
    before = autocast_dtypes()
    trace()
    assert autocast_dtypes() == before
    assert before.count(torch.bfloat16) > 2  # what the CUDA policy would widen stays half here


def trained() -> list[float]:
    torch.manual_seed(3)
    model = net()
    nn.init.trunc_normal_(model[0].weight, std=0.2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    losses = []
    for _ in range(3):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(model(torch.rand(8, 6)), torch.randint(0, 2, (8,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.thorough
@pytest.mark.parametrize("trace", [traced, broken])
def test_real_training_gives_the_same_numbers_as_before(trace: Callable[[], None]) -> None:
    before = trained()
    assert len(set(before)) == 3
    trace()
    assert trained() == before
