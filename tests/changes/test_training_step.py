"""oomproof.Step: one update a batch, with the gradients of the whole batch, and the usual mistakes kept out."""

from __future__ import annotations

from collections import UserDict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn, optim
from torch.nn.functional import cross_entropy

import oomproof
from oomproof.changes.settings_file import write_settings
from oomproof.changes.torch.step import Step
from oomproof.errors import InputError

LABELS = 5


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, LABELS))


def batch(images: int = 7) -> tuple[torch.Tensor, torch.Tensor]:
    noise = torch.Generator().manual_seed(1)
    return torch.rand(images, 8, generator=noise), torch.randint(0, LABELS, (images,), generator=noise)


def loss(model: nn.Module, data: Any) -> torch.Tensor:
    return cross_entropy(model(data[0]), data[1])


def sgd(model: nn.Module) -> optim.Optimizer:
    return optim.SGD(model.parameters(), lr=0.5)


def plain(data: Any = None, loss: Any = loss) -> nn.Module:
    """The model after one step as anybody writes it; its gradients are still there."""
    model = net()
    optimizer = sgd(model)
    loss(model, batch() if data is None else data).backward()
    optimizer.step()
    return model


def close(first: nn.Module, second: nn.Module, gradients: bool = True) -> bool:
    pairs = list(zip(first.parameters(), second.parameters(), strict=True))
    tensors = pairs + ([(a.grad, b.grad) for a, b in pairs] if gradients else [])
    return all((a - b).norm() <= 1e-5 * a.norm() for a, b in tensors)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"batch": 7},
        {"batch": 3},  # 3, 2 and 2: weighing each by a third would be wrong, and so would 3, 3 and 1
        {"batch": 2, "accumulate": 4},
        {"batch": 1},
        {"accumulate": 2},
        {"accumulate": 3},
        {"accumulate": 50},
        {"batch": 100},
    ],
    ids=str,
)
@pytest.mark.parametrize("zero_grad", ["before_forward", "before_backward", "keep"])
def test_the_gradients_of_the_whole_batch(settings: dict[str, Any], zero_grad: str) -> None:
    model = net()
    step = Step(model, sgd(model), loss, {**settings, "zero_grad": zero_grad})
    found = step(batch())
    assert close(model, plain())
    assert found.item() == pytest.approx(loss(net(), batch()).item(), rel=1e-5)
    assert not found.requires_grad


def test_old_gradients_are_dropped_before_each_step() -> None:
    for zero_grad in ("before_forward", "before_backward", "keep"):
        model, other = net(), net()
        step, usual = Step(model, sgd(model), loss, {"batch": 3, "zero_grad": zero_grad}), sgd(other)
        for _ in range(3):
            step(batch())
            usual.zero_grad()
            loss(other, batch()).backward()
            usual.step()
        assert close(model, other)


def test_one_update_a_batch() -> None:
    model = net()
    optimizer = sgd(model)
    updates = []
    optimizer.register_step_post_hook(lambda *args: updates.append(1))
    step = Step(model, optimizer, loss, {"batch": 2})
    step(batch()), step(batch())
    assert len(updates) == 2


def boxes_loss(model: nn.Module, images: list[dict[str, torch.Tensor]]) -> torch.Tensor:
    """Divided by the boxes of the batch, as losses of detectors are."""
    found = model(torch.cat([image["boxes"] for image in images]))
    return cross_entropy(found, torch.cat([image["labels"] for image in images]))


def crowd() -> list[dict[str, torch.Tensor]]:
    noise = torch.Generator().manual_seed(2)
    return [
        {"boxes": torch.rand(count, 8, generator=noise), "labels": torch.randint(0, LABELS, (count,), generator=noise)}
        for count in (1, 9, 2, 4, 6)
    ]


def test_losses_divided_by_boxes_need_their_weight() -> None:
    expected = plain(crowd(), boxes_loss)
    told, untold = net(), net()
    Step(told, sgd(told), boxes_loss, {"batch": 2}, weight=lambda part: sum(len(i["labels"]) for i in part))(crowd())
    Step(untold, sgd(untold), boxes_loss, {"batch": 2})(crowd())
    assert close(told, expected)
    assert not close(untold, expected)  # the mean of means is not the mean


def test_weights_that_are_none() -> None:
    model = net()
    for bad in (-1.0, float("nan")):
        with pytest.raises(InputError, match=r"weight\(batch\) must give a number from 0 on"):
            Step(model, sgd(model), loss, {"batch": 2}, weight=lambda part, bad=bad: bad)(batch())
    nothing = net()
    Step(nothing, sgd(nothing), loss, {"batch": 2}, weight=lambda part: 0)(batch())
    assert close(nothing, plain())  # by images then


@pytest.mark.parametrize("accumulate", [1, 3])
def test_fp16_unscales_once(accumulate: int) -> None:
    """The scale is 2**16: gradients that were unscaled twice, or not at all, would be nowhere near."""
    model = net()
    step = Step(model, sgd(model), loss, {"precision": "fp16", "accumulate": accumulate})
    step(batch())
    expected = plain()
    for ours, theirs in zip(model.parameters(), expected.parameters(), strict=True):
        assert (ours.grad - theirs.grad).norm() <= 0.02 * theirs.grad.norm()
    assert step.scaler is not None and step.scaler.get_scale() == 2**16


def test_bf16_runs_under_autocast() -> None:
    seen = []

    def watching(model: nn.Module, data: Any) -> torch.Tensor:
        out = model(data[0])
        seen.append(out.dtype)
        return cross_entropy(out.float(), data[1])

    model = net()
    Step(model, sgd(model), watching, {"precision": "bf16", "batch": 4})(batch())
    assert seen == [torch.bfloat16, torch.bfloat16]


def test_micro_batches_go_to_the_device_one_by_one() -> None:
    """At most one micro-batch is there at a time: the next is moved after the last was used."""
    events: list[str] = []

    class Watched(UserDict[str, torch.Tensor]):
        def __setitem__(self, key: str, value: torch.Tensor) -> None:
            super().__setitem__(key, value)
            events.append("made")

    def using(model: nn.Module, data: Any) -> torch.Tensor:
        events.append("used")
        return model(data["x"]).square().mean()

    model = net()
    data = Watched(x=batch(4)[0])
    events.clear()
    Step(model, sgd(model), using, {"batch": 2})(data)
    assert events == ["made", "made", "made", "used", "made", "used"]  # cut twice; then moved and used, twice


def test_an_average_is_kept() -> None:
    model = net()
    step = Step(model, sgd(model), loss, {"ema": True, "batch": 4, "checkpoint": "0"})
    for _ in range(2):
        step(batch())
    assert step.average is not None and step.average.n_averaged == 2
    assert not close(step.average.module, model, gradients=False)
    assert not hasattr(step.average.module[0].forward, "chunk")  # the average itself is never computed again


def test_settings_from_everywhere(tmp_path: Path) -> None:
    settings = {"batch": 3, "image_size": (8, 8), "boxes": 20, "zero_grad": "keep"}
    path = write_settings(tmp_path / "s.json", "job", "", settings)
    for given in (settings, path, str(path), SimpleNamespace(settings=settings), None):
        model = net()
        Step(model, sgd(model), loss, given)(batch())
        assert close(model, plain())
    assert oomproof.Step is Step and oomproof.read_settings(path) == settings


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batch": 0}, "batch must be a whole number of images from 1 on; got 0"),
        ({"batch": True}, "batch must be a whole number"),
        ({"accumulate": 0}, "accumulate must be a whole number from 1 on; got 0"),
        ({"precision": "fp8"}, "precision must be one of fp32, fp16, bf16; got 'fp8'"),
        ({"ema": "yes"}, "ema must be True or False; got 'yes'"),
        ({"optimizer": "adamw"}, "the settings are for optimizer=adamw, and the step was given SGD"),
        ({"checkpoint": "nowhere"}, "no module 'nowhere'"),
        ({"update": "fused", "optimizer_state": "tape"}, "optimizer_state must be one of"),
        (3, "takes a mapping, a Plan or the path of a settings file; it was given a int"),
        ("/no/such/file.json", "cannot be read: No such file"),
    ],
)
def test_settings_that_are_none(settings: Any, message: str) -> None:
    model = net()
    with pytest.raises(InputError, match=message) as raised:
        Step(model, sgd(model), loss, settings)
    assert "\n" not in str(raised.value)


def test_a_batch_that_need_not_be_split_may_be_anything() -> None:
    data = SimpleNamespace(x=batch()[0])
    model = net()
    step = Step(model, sgd(model), lambda m, b: m(b.x).mean(), {"batch": 8, "accumulate": 1})
    assert step(data).isfinite()
    with pytest.raises(InputError, match="images cannot be counted"):
        Step(model, sgd(model), lambda m, b: m(b.x).mean(), {"batch": 4, "accumulate": 2})(data)


def test_a_parameter_of_the_jobs_own_code_is_left_to_it(tmp_path: Path) -> None:
    """Its «precision» and «checkpoint» may be anything."""
    settings = {"batch": 3, "precision": "double", "checkpoint": "last.pt", "accumulate": 4}
    path = write_settings(tmp_path / "s.json", "job", "", settings, own=["batch", "precision", "checkpoint"])
    for given in (path, SimpleNamespace(settings=settings, own=("batch", "precision", "checkpoint"))):
        model = net()
        step = Step(model, sgd(model), loss, given)
        assert step.settings == {"batch": 3, "accumulate": 4}
        step(batch())
        assert close(plain(), model)


class Counted(nn.parallel.DistributedDataParallel):
    def _pre_forward(self, *inputs: Any, **named: Any) -> Any:
        self.synchronised = [*getattr(self, "synchronised", []), self.require_backward_grad_sync]
        return super()._pre_forward(*inputs, **named)


@pytest.mark.filterwarnings("ignore::UserWarning")  # of gloo, about addresses of this machine
def test_over_several_gpus_gradients_are_exchanged_once_an_update(tmp_path: Path) -> None:
    distributed = torch.distributed
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'meet'}", rank=0, world_size=1)
    try:
        model = net()
        wrapped = Counted(model)
        step = Step(wrapped, sgd(model), loss, {"batch": 3, "accumulate": 3, "checkpoint": "0,1", "ema": True})
        step(batch())
        assert close(plain(), model)
        assert wrapped.synchronised == [False, False, True]
        assert step.average is not None and isinstance(step.average.module, nn.Sequential)
    finally:
        distributed.destroy_process_group()
