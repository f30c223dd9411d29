"""Gradient accumulation for Detectron2's trainers: a hook for the trainer one has, and a trainer class."""

from __future__ import annotations

import logging
import weakref
from typing import Any

from detectron2.engine import AMPTrainer, DefaultTrainer, HookBase, SimpleTrainer

from oomproof.changes.detectron2.accumulating import accumulated_step, check_count, simple_trainer
from oomproof.changes.detectron2.weights import whole_batch as weigh_whole_batch
from oomproof.errors import InputError
from oomproof.frameworks.detectron2 import inner_trainer

_LOG = logging.getLogger("detectron2.oomproof")  # Detectron2 shows what is below its own name


def accumulate(trainer: Any, count: int, whole_batch: bool = False) -> None:
    """From now on an iteration of ``trainer`` is ``count`` batches of its data loader and one update.

    Losses are divided by what each micro-batch has, as on ``count`` GPUs. With ``whole_batch`` they are divided by what
    all of them have together, as on one GPU with room for all: each micro-batch runs forward once more for that.
    """
    check_count(count)
    refuse_own_step(trainer, "Accumulate", f"oomproof.run.detectron2.accumulated_step(self, {count})")
    inner = simple_trainer(trainer)
    # The function is kept by the trainer it needs: weakly, as Detectron2's hooks know their trainer.
    known = inner if isinstance(inner, weakref.ProxyTypes) else weakref.proxy(inner)
    weigh = weigh_whole_batch if whole_batch else None
    inner.run_step = lambda: accumulated_step(known, count, weigh)
    cfg = getattr(trainer, "cfg", None)
    if cfg is not None:
        images = cfg.SOLVER.IMS_PER_BATCH
        _LOG.info(
            f"An iteration is {count} micro-batches of SOLVER.IMS_PER_BATCH {images} images: {count * images} images "
            f"for each update, which SOLVER.BASE_LR {cfg.SOLVER.BASE_LR} and SOLVER.MAX_ITER should be for"
        )


class Accumulate(HookBase):  # type: ignore[misc]  # Detectron2 has no types
    """``trainer.register_hooks([Accumulate(4)])``: ``accumulate`` as a hook, at work from ``trainer.train()`` on."""

    def __init__(self, count: int, whole_batch: bool = False) -> None:
        self.count, self.whole_batch = check_count(count), whole_batch

    def before_train(self) -> None:
        accumulate(self.trainer, self.count, self.whole_batch)


class AccumulatingTrainer(DefaultTrainer):  # type: ignore[misc]  # Detectron2 has no types
    """DefaultTrainer with ``accumulate`` micro-batches for an update: ``AccumulatingTrainer(cfg, accumulate=4)``."""

    def __init__(self, cfg: Any, accumulate: int = 1, whole_batch: bool = False) -> None:
        check_count(accumulate)  # before a model is built
        super().__init__(cfg)
        _accumulate(self, accumulate, whole_batch)


_accumulate = accumulate


def refuse_own_step(trainer: Any, hook: str, instead: str) -> None:
    """A run_step that somebody has written would be lost."""
    theirs = (SimpleTrainer.run_step, AMPTrainer.run_step, DefaultTrainer.run_step)
    for each in (trainer, inner_trainer(trainer) or trainer):
        step = getattr(each.__class__, "run_step", None)
        if step not in theirs:
            raise InputError(
                f"{hook} works with Detectron2's own run_step, and {each.__class__.__name__} has another; write "
                f"{instead} in that run_step instead"
            )
