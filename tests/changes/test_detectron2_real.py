"""Accumulation in real Detectron2, on the CPU: what is the same as one batch, to the last bit or by its divisors, and
what is not."""

from __future__ import annotations

import itertools
import time
from typing import Any

import pytest
import torch
from detectron2_models import (
    KINDS,
    OF_DETECTRON2,
    SINCE_0_6,
    AMPTrainer,
    EventStorage,
    Loader,
    SimpleTrainer,
    apart,
    build,
    build_optimizer,
    config,
    cut,
    images,
)

from oomproof.changes.detectron2 import Accumulate, accumulate, accumulated_step, whole_batch
from oomproof.changes.torch.step import Step
from oomproof.errors import InputError

pytestmark = [pytest.mark.slow, OF_DETECTRON2]


@pytest.fixture
def same_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Samplers take the first candidates of an image instead of random ones, whichever batch it is in."""
    monkeypatch.setattr(torch, "randperm", lambda n, **named: torch.arange(n, device=named.get("device")))


def trained(
    kind: str, size: int | list[int], count: int, weigh: Any = None, *, plain: bool = False, iterations: int = 2
) -> Any:
    """A SimpleTrainer after a few iterations of 4 images, in batches of ``size``, or of several sizes."""
    cfg = config(kind, BASE_LR=1e-3)
    model = build(cfg)
    batches = cut(images(kind), size) if isinstance(size, int) else uneven(images(kind), size)
    trainer = SimpleTrainer(model, Loader(batches), build_optimizer(cfg, model))
    with EventStorage(0) as trainer.storage:
        for trainer.iter in range(iterations):
            trainer.storage.iter = trainer.iter
            if plain:
                trainer.run_step()
            else:
                accumulated_step(trainer, count, weigh)
    return trainer


def uneven(batch: list[Any], sizes: list[int]) -> list[list[Any]]:
    ends = list(itertools.accumulate(sizes, initial=0))
    return [batch[first:last] for first, last in itertools.pairwise(ends)]


@pytest.mark.parametrize("weigh", [None, whole_batch])
def test_one_micro_batch_is_detectron2s_own_step_to_the_last_bit(weigh: Any) -> None:
    """With the samples that its own step takes, also where they are drawn twice."""
    mine, theirs = trained("mask", 4, 1, weigh), trained("mask", 4, 1, plain=True)
    for a, b in zip(mine.model.parameters(), theirs.model.parameters(), strict=True):
        assert torch.equal(a, b)
    assert {k: v for k, v in mine.storage.latest().items() if "time" not in k} == {
        k: v for k, v in theirs.storage.latest().items() if "time" not in k
    }


@pytest.mark.parametrize("kind", KINDS)
def test_weighed_by_their_divisors_micro_batches_are_one_batch(kind: str, same_samples: None) -> None:
    whole = trained(kind, 4, 1, plain=True)
    for size in (1, 2):
        parts = trained(kind, size, 4 // size, whole_batch)
        assert apart(parts.model, whole.model) < 1e-4
        mine, theirs = (each.storage.latest() for each in (parts, whole))
        for name in theirs:
            if "loss" in name:
                assert mine[name][0] == pytest.approx(theirs[name][0], rel=1e-3, abs=1e-5), name
    if kind == "retinanet":
        assert parts.model.loss_normalizer == pytest.approx(whole.model.loss_normalizer)


@pytest.mark.parametrize("kind", ["mask", "rpn", "retinanet"])
def test_micro_batches_of_several_sizes_are_one_batch(kind: str, same_samples: None) -> None:
    whole = trained(kind, 4, 1, plain=True, iterations=1)
    parts = trained(kind, [1, 3], 2, whole_batch, iterations=1)
    assert apart(parts.model, whole.model) < 1e-4


def test_running_statistics_move_once_where_a_model_runs_twice() -> None:
    found = []
    for weigh in (None, whole_batch):
        cfg = config("rpn")
        cfg.MODEL.RESNETS.NORM = "BN"
        model = build(cfg)
        start = {name: value.clone() for name, value in model.named_buffers()}
        trainer = SimpleTrainer(model, Loader(cut(images("rpn"), 2)), build_optimizer(cfg, model))
        with EventStorage(0):
            accumulated_step(trainer, 2, weigh)
        found.append(dict(model.named_buffers()))
    assert any(not torch.equal(value, start[name]) for name, value in found[0].items())
    assert all(torch.equal(value, found[1][name]) for name, value in found[0].items())


@pytest.mark.parametrize(("kind", "identical"), [("rpn", True), ("mask", False), ("retinanet", False)])
def test_where_a_plain_mean_is_one_batch_and_where_not(kind: str, identical: bool, same_samples: None) -> None:
    whole, parts = trained(kind, 4, 1, plain=True, iterations=1), trained(kind, 1, 4, iterations=1)
    assert (apart(parts.model, whole.model) < 1e-4) == identical


def test_a_plain_mean_is_that_of_as_many_gpus() -> None:
    """DistributedDataParallel takes the mean of gradients whose losses each GPU has divided by its own counts."""
    parts = trained("mask", 1, 4, iterations=1)
    mean = build(config("mask"))
    torch.manual_seed(0)
    build(config("mask"))  # the same random numbers from here on as in the trainer
    with EventStorage(0):
        for batch in cut(images("mask"), 1)[:4]:
            sum(mean(batch).values()).backward()
    for parameter in mean.parameters():
        if parameter.grad is not None:
            parameter.grad /= 4
    assert apart(parts.model, mean) < 1e-4


@SINCE_0_6
def test_half_precision_on_one_micro_batch_and_on_two(same_samples: None) -> None:
    """Detectron2's AMPTrainer runs on GPUs only; what replaces its step also runs here, in bfloat16."""
    found = []
    for size in (2, 1):
        cfg = config("mask", BASE_LR=1e-3)
        model = build(cfg)
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
        trainer = AMPTrainer(
            model,
            Loader(cut(images("mask"), size)),
            build_optimizer(cfg, model),
            grad_scaler=scaler,
            precision=torch.bfloat16,
            log_grad_scaler=True,
        )
        with EventStorage(0) as storage:
            accumulated_step(trainer, 2 // size, whole_batch)
        assert storage.latest()["[metric]grad_scaler"][0] == 8.0
        found.append({name: value for name, (value, _) in storage.latest().items() if "loss" in name})
        assert trainer.state_dict()["grad_scaler"]["_growth_tracker"] == 1
    for name, value in found[0].items():
        assert found[1][name] == pytest.approx(value, rel=0.05), name


def test_an_infinite_loss_is_detectron2s_error_and_no_update() -> None:
    cfg = config("mask")
    model = build(cfg)
    with torch.no_grad():
        model.roi_heads.mask_head.predictor.bias.fill_(torch.nan)
    before = model.roi_heads.box_head.fc1.weight.clone()
    trainer = SimpleTrainer(model, Loader(cut(images("mask"), 2)), build_optimizer(cfg, model))
    accumulate(trainer, 2)
    with EventStorage(0), pytest.raises(FloatingPointError, match="loss_mask"):
        trainer.run_step()
    assert torch.equal(before, model.roi_heads.box_head.fc1.weight)


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("asynchronous", [False, pytest.param(True, marks=SINCE_0_6)])
def test_hooks_metrics_and_counting(asynchronous: bool, whole: bool) -> None:
    class SlowToWrite(SimpleTrainer):
        def _write_metrics(self, *given: Any, **named: Any) -> None:
            time.sleep(0.2)
            super()._write_metrics(*given, **named)

    cfg = config("mask")
    model = build(cfg)
    loader = Loader(cut(images("mask"), 1))
    options = {"async_write_metrics": True} if asynchronous else {}
    trainer = SlowToWrite(model, loader, build_optimizer(cfg, model), **options)
    trainer.register_hooks([Accumulate(2, whole_batch=whole)])
    trainer.train(3, 6)
    assert trainer.iter == 6
    totals = trainer.storage.history("total_loss").values()
    assert [iteration for _, iteration in totals] == [3, 4, 5]  # one a step, not one a micro-batch
    parts = [trainer.storage.history(name).latest() for name in trainer.storage.latest() if name.startswith("loss_")]
    assert sum(parts) == pytest.approx(totals[-1][0], rel=1e-5)


def test_a_loop_of_ones_own_takes_step(same_samples: None) -> None:
    """As in Detectron2's tools/plain_train_net.py."""
    found = []
    for settings in ({}, {"batch": 1}):
        cfg = config("rpn", BASE_LR=1e-3)
        model = build(cfg)
        step = Step(model, build_optimizer(cfg, model), lambda model, batch: model(batch), settings)
        with EventStorage(0):
            found.append((step(images("rpn")[:4]), model))
    (total, whole), (same_total, parts) = found
    assert total.item() == pytest.approx(same_total.item(), rel=1e-5)
    assert apart(parts, whole) < 1e-4


def test_a_step_of_ones_own_is_not_replaced() -> None:
    class Own(SimpleTrainer):
        def run_step(self) -> None:
            accumulated_step(self, 2)

    cfg = config("rpn")
    model = build(cfg)
    trainer = Own(model, Loader(cut(images("rpn"), 1)), build_optimizer(cfg, model))
    with pytest.raises(InputError, match=r"Own has another.*accumulated_step\(self, 4\)"):
        accumulate(trainer, 4)
    trainer.train(0, 1)  # and what the error says to do works


def test_losses_of_other_modules_are_not_guessed() -> None:
    class Other(type(build(config("rpn")))):
        pass

    cfg = config("rpn")
    model = build(cfg)
    model.__class__ = Other
    trainer = SimpleTrainer(model, Loader(cut(images("rpn"), 1)), build_optimizer(cfg, model))
    with pytest.raises(InputError, match=r"the model is a Other.*leave out whole_batch"), EventStorage(0):
        accumulated_step(trainer, 2, whole_batch)
