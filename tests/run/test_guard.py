"""oomproof.Guard: memory runs out at every place in turn, and the training is the one it would have been."""

from __future__ import annotations

import copy
import gc
import logging
import weakref
from itertools import product
from typing import Any

import pytest
import torch
from failing_allocations import FailingAllocations
from torch import nn, optim
from torch.nn.functional import cross_entropy

import oomproof
from oomproof.errors import CannotDo, InputError, OutOfMemory
from oomproof.run.guard.failures import is_out_of_memory
from oomproof.run.guard.guard import Guard
from thorough import thorough_but

IMAGES, CLASSES = 4, 5


pytestmark = pytest.mark.usefixtures("quick_collector")
STEPS = 2
"""the first, which makes the optimizer's state, and one that finds it there"""


class Small(nn.Module):
    """Convolutions, frozen or trained normalisation, and dropout that draws random numbers."""

    def __init__(self, norm: type[nn.Module] = nn.Identity, dropout: float = 0.0) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(self._block(norm, 3 if place == 0 else 6) for place in range(3)))
        self.drop, self.head = nn.Dropout(dropout), nn.Linear(6, CLASSES)

    @staticmethod
    def _block(norm: type[nn.Module], channels: int) -> nn.Module:
        layer = norm(6) if norm is not nn.Identity else norm()
        return nn.Sequential(nn.Conv2d(channels, 6, 3, padding=1), layer, nn.ReLU())

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.drop(self.blocks(images)).mean((2, 3)))


class Repeated(Small):
    """Blocks that PyTorch's usual ways of checkpointing find."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(nn.Conv2d(3, 6, 1), *(_Block() for _ in range(3)))


class _Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(6, 6, 3, padding=1), nn.Conv2d(6, 6, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.b(self.a(x).relu())


def batches(images: int = IMAGES) -> list[Any]:
    noise = torch.Generator().manual_seed(1)
    return [
        (torch.rand(images, 3, 8, 8, generator=noise), torch.randint(0, CLASSES, (images,), generator=noise))
        for _ in range(STEPS)
    ]


def loss(model: nn.Module, batch: Any) -> torch.Tensor:
    return cross_entropy(model(batch[0]), batch[1])


OPTIMIZERS = {
    "sgd": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=1e-2),
    "adamw": lambda p: optim.AdamW(p, lr=0.01),
    "sgd, foreach": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=1e-2, foreach=True),
    "adam, foreach": lambda p: optim.Adam(p, lr=0.01, foreach=True),
    "adamw, fused": lambda p: optim.AdamW(p, lr=0.01, fused=True),
}


def fresh(**given: Any) -> nn.Module:
    torch.manual_seed(0)
    return Small(**given)


def train_plainly(model: nn.Module, make: Any, scaler: Any = None, images: int = IMAGES) -> list[float]:
    """As anybody writes it."""
    optimizer = make(model.parameters())
    losses = []
    for batch in batches(images):
        optimizer.zero_grad()
        found = loss(model, batch)
        if scaler is None:
            found.backward()
            optimizer.step()
        else:
            scaler.scale(found).backward()
            scaler.step(optimizer)
            scaler.update()
        losses.append(found.item())
    return losses


def farthest(first: nn.Module, second: nn.Module) -> float:
    pairs = zip(first.state_dict().values(), second.state_dict().values(), strict=True)
    return max(float((a - b).abs().max() / (a.abs().max() + 1e-12)) for a, b in pairs)


def allocations(model: nn.Module, make: Any, scaler: bool = False, images: int = IMAGES) -> int:
    """How many places there are where a guarded training can fail."""
    guard = Guard(model, make(model.parameters()), scaler=new_scaler() if scaler else None)
    given = batches(images)
    with FailingAllocations() as mode:
        for batch in given:
            guard.step(batch, loss)
    return mode.count


def new_scaler() -> torch.amp.GradScaler:
    return torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2)


@pytest.mark.usefixtures("double_precision")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "with_scaler"),
    thorough_but([("sgd", False)], list(product(OPTIMIZERS, [False, True]))),
)
def test_a_failure_at_every_allocation_in_turn(name: str, with_scaler: bool) -> None:
    """Forward, backward, update, scaler: each place of two steps; the result is that of the undisturbed training."""
    make = OPTIMIZERS[name]
    reference = fresh()
    losses = train_plainly(reference, make, new_scaler() if with_scaler else None)
    places = allocations(fresh(), make, with_scaler)
    assert places >= 60
    for place in range(places):
        model = fresh()
        scaler = new_scaler() if with_scaler else None
        guard = Guard(model, make(model.parameters()), scaler=scaler)
        given = batches()
        with FailingAllocations({place}) as mode:
            found = [guard.step(batch, loss).item() for batch in given]
        assert mode.failed == 1, place
        assert farthest(reference, model) < 1e-9, place
        assert found == pytest.approx(losses, rel=1e-9), place


@pytest.mark.usefixtures("double_precision")
def test_random_numbers_and_statistics_are_those_of_an_undisturbed_training() -> None:
    """With dropout and trained normalisation the batch cannot be split in equality: blocks are computed again."""
    reference = fresh(norm=nn.BatchNorm2d, dropout=0.5)
    start = copy.deepcopy(reference)
    torch.manual_seed(3)
    losses = train_plainly(reference, OPTIMIZERS["sgd"])
    for place in range(0, allocations(copy.deepcopy(start), OPTIMIZERS["sgd"]), 7):
        model = copy.deepcopy(start)
        guard = Guard(model, OPTIMIZERS["sgd"](model.parameters()), {"checkpoint": "blocks.1"})
        guard.sizes.floor = IMAGES  # no splitting here: the same step is only begun again
        torch.manual_seed(3)
        found = []
        for batch in batches():
            with FailingAllocations({place} if not found else set()):
                try:
                    found.append(guard.step(batch, loss).item())
                except OutOfMemory:
                    found.append(guard.step(batch, loss).item())  # its state is intact, so it can be done again
        assert farthest(reference, model) < 1e-9, place
        assert found == pytest.approx(losses, rel=1e-9), place


@pytest.mark.usefixtures("double_precision")
@pytest.mark.parametrize("images", [2, 3, 7, 16])
def test_a_batch_that_never_fits_is_split_once_and_stays_split(images: int, caplog: pytest.LogCaptureFixture) -> None:
    reference = fresh()
    losses = train_plainly(reference, OPTIMIZERS["sgd"], images=images)
    model = fresh()
    guard = Guard(model, OPTIMIZERS["sgd"](model.parameters()))
    given = batches(images)
    with FailingAllocations(too_large=2 * 6 * 64), caplog.at_level(logging.WARNING, "oomproof.guard"):
        found = [guard.step(batch, loss).item() for batch in given]
    assert guard.sizes.largest == 1
    assert farthest(reference, model) < 1e-9
    assert found == pytest.approx(losses, rel=1e-9)
    changes = [each for each in caplog.messages if "going on with" in each]
    assert "micro-batches of 1 image instead of 2; the update is the same where the loss is a mean" in changes[-1]
    assert len(changes) == guard.recoveries < 5
    others = [each for each in caplog.messages if each not in changes]
    assert len(others) == 1 and "could not be looked at" in others[0]  # two images do not fit without gradients either


def test_larger_micro_batches_are_tried_again_later() -> None:
    model = fresh()
    guard = Guard(model, OPTIMIZERS["sgd"](model.parameters()), patience=3)
    batch = batches(8)[0]
    with FailingAllocations(too_large=5 * 6 * 64):
        for _ in range(3):
            guard.step(batch, loss)
    assert guard.sizes.largest == 8 and guard.recoveries == 1  # 4 fits, and after 3 good steps 8 is tried
    with FailingAllocations(too_large=5 * 6 * 64):
        guard.step(batch, loss)
        assert guard.sizes.largest == 4 and guard.recoveries == 2 and guard.sizes.patience == 6
    for _ in range(20):
        guard.step(batch, loss)
    assert guard.sizes.largest == 8 and guard.recoveries == 2


def test_one_image_that_does_not_fit_climbs_and_then_stops_with_its_state_intact(
    caplog: pytest.LogCaptureFixture,
) -> None:
    torch.manual_seed(0)
    model = Repeated()
    before = copy.deepcopy(model.state_dict())
    guard = Guard(model, OPTIMIZERS["adamw"](model.parameters()), allow=["precision"])
    batch = batches()[0]
    with FailingAllocations(too_large=64), caplog.at_level(logging.WARNING, "oomproof.guard"):
        with pytest.raises(OutOfMemory, match=r"step 1: out of memory .* as before this step.*Tried to allocate"):
            guard.step(batch, loss)
    assert [each for each in caplog.messages if "computed again" in each and "the same gradients" in each]
    assert [each for each in caplog.messages if "bf16" in each]
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    guard.step(batches()[0], loss)  # and when there is room again, it goes on


@pytest.mark.parametrize("form", ["lists", "nested", "detectron2", "samples", "arrays", "pairs of fields"])
def test_batches_of_other_forms(form: str) -> None:
    images, labels = batches()[0]
    batch: Any = {
        "lists": (list(images), list(labels)),
        "nested": {"inputs": {"pixels": images}, "labels": labels, "name": "coco"},
        "detectron2": [{"image": i, "label": label, "file": "a.jpg"} for i, label in zip(images, labels, strict=True)],
        "samples": list(zip(images, labels, strict=True)),
        "arrays": {"inputs": {"pixels": images.numpy()}, "labels": labels.numpy()},
        "pairs of fields": {"inputs": {"pixels": images, "size": [8, 8]}, "labels": labels, "views": (images, images)},
    }[form]

    def any_loss(model: nn.Module, batch: Any) -> torch.Tensor:
        if form == "samples":
            return loss(model, (torch.stack([i for i, _ in batch]), torch.stack([label for _, label in batch])))
        if form == "arrays":
            return loss(model, (torch.from_numpy(batch["inputs"]["pixels"]), torch.from_numpy(batch["labels"])))
        if form == "pairs of fields":
            assert len(batch["views"]) == len(batch["inputs"]["size"]) == 2
        if isinstance(batch, dict):
            return loss(model, (batch["inputs"]["pixels"], batch["labels"]))
        if isinstance(batch[0], dict):
            return loss(model, (torch.stack([e["image"] for e in batch]), torch.stack([e["label"] for e in batch])))
        return loss(model, (torch.stack(list(batch[0])), torch.stack(list(batch[1]))))

    reference, model = fresh(), fresh()
    optimizer = OPTIMIZERS["sgd"](reference.parameters())
    any_loss(reference, batch).backward()
    optimizer.step()
    guard = Guard(model, OPTIMIZERS["sgd"](model.parameters()))
    with FailingAllocations(too_large=3 * 6 * 64):
        guard.step(batch, any_loss)
    assert guard.sizes.largest == 2
    assert farthest(reference, model) < 1e-5


def test_gradients_can_be_clipped_before_the_update() -> None:
    reference, model = fresh(), fresh()
    optimizer = OPTIMIZERS["sgd"](reference.parameters())
    loss(reference, batches()[0]).backward()
    nn.utils.clip_grad_norm_(reference.parameters(), 0.01)
    optimizer.step()
    guard = Guard(model, OPTIMIZERS["sgd"](model.parameters()), scaler=new_scaler())
    batch = batches()[0]
    with FailingAllocations(too_large=3 * 6 * 64):
        guard.step(batch, loss, lambda: nn.utils.clip_grad_norm_(model.parameters(), 0.01))
    assert farthest(reference, model) < 1e-5


def test_other_errors_are_not_caught() -> None:
    model = fresh()
    guard = Guard(model, OPTIMIZERS["sgd"](model.parameters()))
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        guard.step(batches()[0], lambda model, batch: model.head(batch[0].flatten(1)).sum())
    assert guard.recoveries == 0


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (torch.cuda.OutOfMemoryError("CUDA out of memory."), True),
        (
            RuntimeError("[enforce fail at alloc_cpu.cpp:73] . DefaultCPUAllocator: can't allocate memory: you tried"),
            True,
        ),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (RuntimeError("MPS backend out of memory (MPS allocated: 4 GiB)"), True),
        (RuntimeError("CUDA error: device-side assert triggered"), False),
        (RuntimeError("shape '[2, 3]' is invalid for input of size 5"), False),
        (ValueError("out of memory"), False),
        (KeyError("memory"), False),
    ],
    ids=str,
)
def test_which_errors_are_of_memory(error: Exception, expected: bool) -> None:
    assert is_out_of_memory(error) is expected


def test_what_a_failed_step_held_is_free_before_the_next() -> None:
    """The exception's frames hold every activation of the step; a guard that keeps them leaks a whole step."""
    held: list[weakref.ref[torch.Tensor]] = []
    fail = [True]

    def failing(model: nn.Module, batch: Any) -> torch.Tensor:
        gc.collect()
        assert not any(each() is not None for each in held), "an activation of the failed step is still there"
        activations = model.blocks(batch[0])
        held.append(weakref.ref(activations))
        if fail.pop() if fail else False:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory.")
        return model.head(activations.mean((2, 3))).sum()

    model = fresh()
    guard = Guard(model, OPTIMIZERS["sgd"](model.parameters()), weight=lambda batch: len(batch[0]))
    guard.step(batches()[0], failing)
    assert len(held) == 3  # four images at once, then twice two


def test_what_a_guard_refuses() -> None:
    model = fresh()
    with pytest.raises(CannotDo, match="gradients=at_once cannot be taken back"):
        Guard(model, OPTIMIZERS["sgd"](model.parameters()), {"gradients": "at_once"})
    with pytest.raises(InputError, match=r"allow.*precision; got speed"):
        Guard(model, OPTIMIZERS["sgd"](model.parameters()), allow=["speed"])
    with pytest.raises(InputError, match="DataParallel splits"):
        Guard(nn.DataParallel(model), OPTIMIZERS["sgd"](model.parameters()))
    assert oomproof.Guard is Guard


@pytest.mark.parametrize("reduction", ["mean", "sum", "boxes"])
def test_losses_that_are_no_means(reduction: str, caplog: pytest.LogCaptureFixture) -> None:
    """A sum is noticed; what is neither is told, and right where the divisor is given."""

    def other(model: nn.Module, batch: Any) -> torch.Tensor:
        each = cross_entropy(model(batch[0]), batch[1], reduction="none")
        if reduction == "boxes":
            return (each * batch[1]).sum() / boxes(batch)
        return each.mean() if reduction == "mean" else each.sum()

    def boxes(batch: Any) -> float:
        return float(batch[1].sum()) + 1e-9

    reference = fresh()
    optimizer = OPTIMIZERS["sgd"](reference.parameters())
    other(reference, batches(8)[0]).backward()
    optimizer.step()
    for weight in (None, boxes) if reduction == "boxes" else (None,):
        caplog.clear()
        model = fresh()
        guard = Guard(model, OPTIMIZERS["sgd"](model.parameters()), {"batch": 4}, weight=weight)
        guard.step(batches(8)[0], other)
        told = [each for each in caplog.messages if "neither the mean nor the sum" in each]
        assert bool(told) == (reduction == "boxes" and weight is None)
        assert (farthest(reference, model) < 1e-4) == (not told)
