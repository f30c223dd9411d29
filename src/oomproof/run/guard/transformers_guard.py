"""``trainer.add_callback(oomproof.transformers.Guard(trainer))``: Hugging Face's Trainer, guarded.

``training_step`` (forward and backward) is run by a guard: a batch that does not fit is done in micro-batches. With
DistributedDataParallel processes exchange gradients once all have theirs, and decide together. Elsewhere, and without
the trainer, memory is watched, and a line says so.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel
from transformers import TrainerCallback

from oomproof.memory.forecast import Forecast
from oomproof.run.guard.guard import Guard as StepGuard
from oomproof.run.monitor.watching import Watch

LOG = logging.getLogger("oomproof.guard")


class Guard(TrainerCallback):  # type: ignore[misc]  # transformers has no types for it
    """``plan`` and ``options`` are what ``oomproof.Guard`` takes besides model, optimizer and scaler; the others are
    those of Monitor."""

    def __init__(
        self, trainer: Any = None, plan: Any = None, *, log: str | Path | None = None, limit: int | None = None,
        tensorboard: Any = None, forecast: Forecast | None = None, **options: Any,
    ) -> None:  # fmt: skip
        self.trainer, self.plan, self.options = trainer, plan, options
        self._given = (log, limit, tensorboard, forecast)
        self._plain: Any = None
        self.watch: Watch | None = None
        self.guard: StepGuard | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **about: Any) -> None:
        self.watch = Watch(*self._given)
        reason = _why_not(self.trainer)
        if reason:
            LOG.warning(f"memory is watched, and nothing is done when it runs out: {reason}")
            return
        optimizer = about["optimizer"]
        own = getattr(optimizer, "optimizer", optimizer)  # inside accelerate's AcceleratedOptimizer
        self.guard = StepGuard(self.trainer.model_wrapped, own, self.plan, **self.options)
        self._plain = self.trainer.training_step
        self.trainer.training_step = self._training_step

    def on_step_end(self, args: Any, state: Any, control: Any, **about: Any) -> None:
        assert self.watch is not None
        self.watch.step()

    def on_train_end(self, args: Any, state: Any, control: Any, **about: Any) -> None:
        if self._plain is not None:
            self.trainer.training_step, self._plain = self._plain, None
        if self.watch is not None:
            self.watch.end()

    def _training_step(self, model: torch.nn.Module, inputs: Any, items: Any = None) -> torch.Tensor:
        assert self.guard is not None
        trainer, plain = self.trainer, self._plain
        compute_loss = trainer.compute_loss
        if isinstance(model, DistributedDataParallel):  # which would exchange gradients on the way
            model = model.module

        def run(part: Any, share: float, last: bool) -> torch.Tensor:
            """Trainer's own step, whose loss counts for its share."""
            if share == 1:
                return plain(model, part, items)
            trainer.compute_loss = lambda *given, **named: share * compute_loss(*given, **named)
            try:
                return plain(model, part, items)
            finally:
                trainer.compute_loss = compute_loss

        def loss(_: Any, part: Any) -> Any:
            with trainer.compute_loss_context_manager():
                return compute_loss(model, part, num_items_in_batch=items)

        self.guard.steps = trainer.state.global_step
        return self.guard.backward(inputs, loss, run)


def _why_not(trainer: Any) -> str:
    """Why a step cannot be guarded; empty where it can."""
    if trainer is None:
        return "a callback does not see its trainer; give it: oomproof.transformers.Guard(trainer)"
    model = trainer.model_wrapped
    alone = trainer.args.n_gpu <= 1 and str(trainer.accelerator.distributed_type) == "DistributedType.NO"
    if not alone and not isinstance(model, DistributedDataParallel):
        return (
            f"{type(model).__name__} talks to other processes or GPUs during forward and backward, where one that "
            "fails leaves the others waiting; one device and DistributedDataParallel (torchrun) are guarded"
        )
    return ""
