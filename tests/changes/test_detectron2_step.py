"""Gradient accumulation for Detectron2's trainers, proved without Detectron2: on a model that returns a dict of losses,
as its models do, and on trainers with the attributes of its own. test_detectron2_real.py has the real ones."""

from __future__ import annotations

import itertools
import math
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from oomproof.changes.detectron2 import accumulated_step
from oomproof.changes.detectron2.accumulating import MicroBatch, random_state
from oomproof.errors import InputError, JobError

CLASSES = 4


class Detector(nn.Module):
    """Takes a list of dicts, one for each image; returns losses: one is a mean over images, the other over boxes, whose
    numbers differ from image to image."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Linear(6, 16), nn.Tanh())
        self.scene, self.boxes = nn.Linear(16, CLASSES), nn.Linear(16, 1)

    def forward(self, batch: Sequence[Mapping[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
        scenes = self.scene(self.body(torch.stack([image["image"] for image in batch])))
        boxes = self.boxes(self.body(torch.cat([image["boxes"] for image in batch])))[:, 0]
        return {
            "loss_scene": cross_entropy(scenes, torch.stack([image["label"] for image in batch])),
            "loss_box": binary_cross_entropy_with_logits(boxes, torch.cat([image["hits"] for image in batch])),
        }


def images(count: int) -> list[dict[str, torch.Tensor]]:
    noise = torch.Generator().manual_seed(1)
    return [
        {
            "image": torch.randn(6, generator=noise),
            "label": torch.randint(0, CLASSES, (), generator=noise),
            "boxes": torch.randn(1 + place * 2, 6, generator=noise),
            "hits": torch.rand(1 + place * 2, generator=noise).round(),
        }
        for place in range(count)
    ]


class Trainer:
    """What a trainer of Detectron2 0.6 has, and no more."""

    def __init__(self, model: nn.Module, batches: Sequence[Any]) -> None:
        self.model, self.iter = model.train(), 7
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        self._data_loader_iter: Iterator[Any] = itertools.cycle(batches)
        self.metrics: list[dict[str, float]] = []
        self.updates = 0
        self.optimizer.register_step_post_hook(lambda *_: self._updated())

    def _updated(self) -> None:
        self.updates += 1

    def _write_metrics(self, losses: Mapping[str, torch.Tensor], data_time: float, iter: int | None = None) -> None:
        assert not any(loss.requires_grad for loss in losses.values()), "graphs of earlier micro-batches are kept"
        found = {name: loss.item() for name, loss in losses.items()}
        self.metrics.append(found | {"data_time": data_time, "iter": -1 if iter is None else iter})
        if not all(math.isfinite(value) for value in found.values()):
            raise FloatingPointError


class LaterTrainer(Trainer):
    """With what later versions have beside it."""

    zero_grad_before_forward = True
    async_write_metrics = True

    def __init__(self, model: nn.Module, batches: Sequence[Any]) -> None:
        super().__init__(model, batches)
        self.concurrent_executor = self
        self.seen: list[torch.Tensor] = []
        self.waited = 0

    def submit(self, function: Any, *given: Any, **named: Any) -> LaterTrainer:
        function(*given, **named)
        return self

    def result(self) -> None:
        self.waited += 1

    def after_backward(self) -> None:
        self.seen.append(next(self.model.parameters()).grad.clone())


def cut(batch: list[Any], size: int) -> list[list[Any]]:
    return [batch[first : first + size] for first in range(0, len(batch), size)]


def by_hand(weights: Sequence[Mapping[str, float]], batches: Sequence[Any], updates: int = 1) -> nn.Module:
    """The model after ``updates`` of the weighted losses as anybody writes them; its gradients are still there."""
    model = Detector()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(updates):
        optimizer.zero_grad()
        found = [(model(batch), weight) for batch, weight in zip(batches, weights, strict=True)]
        torch.stack([loss * weight[name] for losses, weight in found for name, loss in losses.items()]).sum().backward()
        optimizer.step()
    return model


def same(first: nn.Module, second: nn.Module, allowed: float = 1e-5) -> bool:
    pairs = list(zip(first.parameters(), second.parameters(), strict=True))
    tensors = pairs + [(a.grad, b.grad) for a, b in pairs]
    return all((a - b).norm() <= allowed * b.norm() for a, b in tensors)


@pytest.mark.parametrize("kind", [Trainer, LaterTrainer])
@pytest.mark.parametrize("count", [1, 2, 4, 8])
def test_an_update_has_the_mean_gradient_of_its_micro_batches(kind: type[Trainer], count: int) -> None:
    batches = cut(images(8), 8 // count)
    trainer = kind(Detector(), batches)
    for _ in range(3):  # momentum, and gradients of earlier updates, which must be gone
        accumulated_step(trainer, count)
    expected = by_hand([dict.fromkeys(("loss_scene", "loss_box"), 1 / count)] * count, batches, updates=3)
    assert trainer.updates == 3
    assert same(trainer.model, expected)


def test_the_usual_mistakes_give_other_gradients() -> None:
    """What the test above would not notice, it could not prove."""
    batches = cut(images(8), 2)
    trainer = Trainer(Detector(), batches)
    accumulated_step(trainer, 4)
    for wrong in (1.0, 1 / 16):  # not divided, divided twice
        assert not same(trainer.model, by_hand([dict.fromkeys(("loss_scene", "loss_box"), wrong)] * 4, batches), 0.5)
    last_only = by_hand([dict.fromkeys(("loss_scene", "loss_box"), 1.0)], batches[-1:])  # zeroed for each micro-batch
    assert not same(trainer.model, last_only, 0.1)


def test_a_loss_per_image_is_that_of_the_whole_batch() -> None:
    whole, trainer = Detector(), Trainer(Detector(), cut(images(8), 2))
    whole(images(8))["loss_scene"].backward()
    plain, trainer.model.forward = trainer.model.forward, lambda batch: plain(batch)["loss_scene"]
    accumulated_step(trainer, 4)
    for mine, expected in zip(trainer.model.scene.parameters(), whole.scene.parameters(), strict=True):
        assert torch.allclose(mine.grad, expected.grad, atol=1e-7)
    assert set(trainer.metrics[0]) == {"total_loss", "data_time", "iter"}  # Detectron2's name for a single loss


def test_one_micro_batch_is_trained_to_the_last_bit_as_without() -> None:
    batch = images(4)
    trainer = Trainer(Detector(), [batch])
    accumulated_step(trainer, 1)
    plain = Detector()
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1, momentum=0.9)
    sum(plain(batch).values()).backward()
    optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(trainer.model.parameters(), plain.parameters(), strict=True))


def test_metrics_are_means_and_waiting_is_summed(monkeypatch: pytest.MonkeyPatch) -> None:
    batches = cut(images(6), 2)
    model = Detector()
    expected = [{name: loss.item() for name, loss in model(batch).items()} for batch in batches]
    ticks = itertools.count()
    monkeypatch.setattr("oomproof.changes.detectron2.accumulating.time.perf_counter", lambda: float(next(ticks)))
    trainer, later = Trainer(Detector(), batches), LaterTrainer(Detector(), batches)
    accumulated_step(trainer, 3)
    accumulated_step(later, 3)
    (found,) = trainer.metrics  # written once for an update
    assert found["data_time"] == 3.0
    for name in ("loss_scene", "loss_box"):
        assert found[name] == pytest.approx(sum(each[name] for each in expected) / 3, rel=1e-6)
    assert later.metrics[0]["iter"] == 7  # another thread writes it: the iteration may have moved on
    (gradient,) = later.seen  # after_backward comes once, when all gradients are there
    assert torch.equal(gradient, next(later.model.parameters()).grad)


def test_a_default_trainer_keeps_the_iteration_of_the_trainer_inside() -> None:
    """In a run_step of one's own, where Detectron2's, which does this, is not called."""
    inner = LaterTrainer(Detector(), cut(images(4), 2))
    outer = SimpleNamespace(_trainer=inner, iter=41)
    accumulated_step(outer, 2)
    assert inner.metrics[0]["iter"] == 41


def test_only_one_micro_batch_is_in_memory_at_a_time() -> None:
    class Watched(Detector):
        activations: weakref.ref[torch.Tensor] | None = None

        def forward(self, batch: Sequence[Mapping[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
            assert self.activations is None or self.activations() is None, "the last micro-batch is still there"
            hidden = self.body(torch.stack([image["image"] for image in batch]))
            self.activations = weakref.ref(hidden)
            return {"loss": self.scene(hidden).square().mean()}

    drawn: list[weakref.ref[Any]] = []

    class Images(list):
        """A list that can be watched."""

    def loader() -> Iterator[Images]:
        while True:
            assert sum(batch() is not None for batch in drawn) <= 1, "all batches are drawn before they are needed"
            batch = Images(images(2))
            drawn.append(weakref.ref(batch))
            yield batch
            del batch

    trainer = Trainer(Watched(), [])
    trainer._data_loader_iter = loader()
    accumulated_step(trainer, 4)
    assert len(drawn) == 4


def test_an_infinite_loss_stops_before_the_update() -> None:
    batches = cut(images(4), 2)
    batches[0][0]["image"] = torch.full((6,), torch.nan)
    trainer = Trainer(Detector(), batches)
    before = [parameter.clone() for parameter in trainer.model.parameters()]
    with pytest.raises(FloatingPointError):
        accumulated_step(trainer, 2)
    assert trainer.updates == 0
    assert all(torch.equal(a, b) for a, b in zip(before, trainer.model.parameters(), strict=True))


def half_precision(batches: Sequence[Any]) -> Any:
    trainer: Any = Trainer(Detector(), batches)
    trainer.grad_scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    trainer.precision = torch.bfloat16
    return trainer


def test_half_precision_is_scaled_once_for_an_update() -> None:
    batches = cut(images(8), 2)
    trainer = half_precision(batches)
    accumulated_step(trainer, 4)
    expected = Detector()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        sum(loss / 4 for batch in batches for loss in expected(batch).values()).backward()
    assert trainer.updates == 1
    for mine, other in zip(trainer.model.parameters(), expected.parameters(), strict=True):
        assert (mine.grad - other.grad).norm() <= 2e-2 * other.grad.norm()  # bfloat16 rounds to 1 in 128
    assert trainer.grad_scaler.get_scale() == 2.0**10
    assert trainer.grad_scaler._get_growth_tracker() == 1  # one update, not four


def test_an_overflow_in_one_micro_batch_skips_the_update_and_halves_the_scale() -> None:
    trainer = half_precision(cut(images(4), 2))
    first = True

    def overflow(gradient: torch.Tensor) -> torch.Tensor:
        nonlocal first
        first, now = False, first
        return gradient * torch.inf if now else gradient

    trainer.model.scene.weight.register_hook(overflow)
    accumulated_step(trainer, 2)
    assert trainer.updates == 0
    assert trainer.grad_scaler.get_scale() == 2.0**9


def test_gpus_exchange_gradients_once_for_an_update(tmp_path: Path) -> None:
    exchanged = []
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    try:
        model = nn.parallel.DistributedDataParallel(Detector())

        def exchange(_state, bucket):  # DDP reads annotations, and takes none that are text
            exchanged.append(bucket.is_last())
            done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
            done.set_result(bucket.buffer())
            return done

        model.register_comm_hook(None, exchange)
        batches = cut(images(8), 2)
        trainer = Trainer(model, batches)
        for _ in range(2):
            accumulated_step(trainer, 4)
        assert exchanged.count(True) == 2
        assert same(model.module, by_hand([dict.fromkeys(("loss_scene", "loss_box"), 0.25)] * 4, batches, updates=2))
    finally:
        torch.distributed.destroy_process_group()


def on_one_of_two_gpus(rank: int, folder: str) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    model = nn.parallel.DistributedDataParallel(Detector())
    trainer = Trainer(model, cut(images(8), 2)[rank::2])
    for _ in range(2):
        accumulated_step(trainer, 2)
    if rank == 0:
        torch.save({name: (value, value.grad) for name, value in model.module.named_parameters()}, f"{folder}/found")
    torch.distributed.destroy_process_group()


@pytest.mark.thorough
@pytest.mark.slow
def test_one_gpu_with_four_micro_batches_trains_as_two_with_two(tmp_path: Path) -> None:
    torch.multiprocessing.spawn(on_one_of_two_gpus, (str(tmp_path),), nprocs=2)
    alone = Trainer(Detector(), cut(images(8), 2))
    for _ in range(2):
        accumulated_step(alone, 4)
    for name, (value, gradient) in torch.load(tmp_path / "found").items():
        mine = alone.model.get_parameter(name)
        assert (mine - value).norm() <= 1e-5 * value.norm()
        assert (mine.grad - gradient).norm() <= 1e-5 * gradient.norm()


def by_boxes(noise: list[torch.Tensor]) -> Any:
    @contextmanager
    def weigh(model: nn.Module, forward: Any, batches: Sequence[Any]) -> Iterator[list[MicroBatch]]:
        boxes = [sum(len(image["boxes"]) for image in batch) for batch in batches]
        states = []
        for batch in batches:
            states.append(random_state(torch.device("cpu")))
            assert set(forward(batch)) == {"loss_scene", "loss_box"}
            noise.append(torch.rand(3))  # a model that samples
        count = len(batches)
        yield [
            MicroBatch(batch, {"loss_scene": 1 / count, "loss_box": box / sum(boxes)}, state)
            for batch, box, state in zip(batches, boxes, states, strict=True)
        ]

    return weigh


def test_losses_by_their_true_divisors_are_those_of_the_whole_batch() -> None:
    whole = by_hand([{"loss_scene": 1.0, "loss_box": 1.0}], [images(8)])
    trainer, plain = LaterTrainer(Detector(), cut(images(8), 2)), LaterTrainer(Detector(), cut(images(8), 2))
    accumulated_step(trainer, 4, by_boxes([]))
    accumulated_step(plain, 4)
    assert (trainer.waited, plain.waited) == (1, 0)  # for the metrics that another thread may be writing
    assert same(trainer.model, whole)
    assert not same(plain.model, whole, 1e-2)  # equal shares are another gradient where boxes are unevenly spread


def test_what_was_sampled_while_weighing_is_sampled_again() -> None:
    before: list[torch.Tensor] = []
    after: list[torch.Tensor] = []
    trainer = Trainer(Detector(), cut(images(8), 2))
    trainer.model.register_forward_hook(lambda *_: after.append(torch.rand(3)) if torch.is_grad_enabled() else None)

    @contextmanager
    def weigh(model: nn.Module, forward: Any, batches: Sequence[Any]) -> Iterator[list[MicroBatch]]:
        with torch.no_grad(), by_boxes(before)(model, forward, batches) as parts:
            pass
        yield parts

    accumulated_step(trainer, 4, weigh)
    assert len(before) == 4
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


@pytest.mark.parametrize("count", [0, -1, 1.5, True, "4", None])
def test_a_count_that_is_none(count: Any) -> None:
    with pytest.raises(InputError, match="whole number from 1 on"):
        accumulated_step(Trainer(Detector(), [images(2)]), count)


def test_a_model_in_evaluation_mode() -> None:
    trainer = Trainer(Detector(), [images(2)])
    trainer.model.eval()
    with pytest.raises(JobError, match="evaluation mode"):
        accumulated_step(trainer, 2)


@pytest.mark.parametrize("returned", [None, [], {}])
def test_a_model_without_losses(returned: Any) -> None:
    trainer = Trainer(Detector(), [images(2)])
    trainer.model.forward = lambda batch: returned
    with pytest.raises(JobError, match="dict of losses"):
        accumulated_step(trainer, 2)


def test_a_loss_that_was_not_weighed() -> None:
    @contextmanager
    def weigh(model: nn.Module, forward: Any, batches: Sequence[Any]) -> Iterator[list[MicroBatch]]:
        yield [MicroBatch(batch, {"loss_scene": 0.5}) for batch in batches]

    with pytest.raises(JobError, match=r"loss_box.*whole_batch"):
        accumulated_step(Trainer(Detector(), [images(2)]), 2, weigh)


def test_the_public_name_is_the_function_whatever_was_imported_before() -> None:
    """A module of the same name in the package would take its place once something has imported it."""
    import oomproof.changes.detectron2.accumulating
    from oomproof.changes import detectron2
    from oomproof.run.detectron2 import accumulated_step as public

    assert public is detectron2.accumulated_step is oomproof.changes.detectron2.accumulating.accumulated_step
