"""``Trainer(callbacks=[oomproof.lightning.Guard()])``: a Lightning training that goes on when memory runs out.

Under automatic optimisation, ``training_step`` and its backward are run by a guard: a batch that does not fit is done
in micro-batches. With DistributedDataParallel processes exchange gradients once all have theirs, and decide together.
Elsewhere (manual optimisation, other strategies) memory is watched, and a line says so.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from oomproof.frameworks.lightning import LightningBatch, replace_pass, restore_pass, run_inside
from oomproof.memory.forecast import Forecast
from oomproof.run.guard.guard import Guard as StepGuard
from oomproof.run.monitor.watching import Watch

if TYPE_CHECKING:
    from lightning.pytorch import Callback
elif "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules:
    from pytorch_lightning import Callback  # the same code under its older name; a Trainer takes callbacks of its own
else:
    try:
        from lightning.pytorch import Callback
    except ImportError:
        from pytorch_lightning import Callback

LOG = logging.getLogger("oomproof.guard")


class Guard(Callback):  # type: ignore[misc]  # Lightning's types are not read
    """``plan`` and ``options`` are what ``oomproof.Guard`` takes besides model, optimizer and scaler; the others are
    those of Monitor."""

    def __init__(
        self, plan: Any = None, *, log: str | Path | None = None, limit: int | None = None, tensorboard: Any = None,
        forecast: Forecast | None = None, **options: Any,
    ) -> None:  # fmt: skip
        self.plan, self.options = plan, options
        self._given = (log, limit, tensorboard, forecast)
        self.watch: Watch | None = None
        self.guard: StepGuard | None = None
        self._wrapped: Any = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self.watch = Watch(*self._given)
        reason = _why_not(trainer, pl_module)
        if reason:
            LOG.warning(f"memory is watched, and nothing is done when it runs out: {reason}")
            return
        model = trainer.strategy.model
        self.guard = guard = StepGuard(model, trainer.optimizers[0], self.plan, **self.options)
        if model is not pl_module:
            self._wrapped = run_inside(trainer.strategy)

        def run(batch: LightningBatch) -> torch.Tensor | None:
            guard.steps = trainer.global_step
            return run_guarded(guard, batch)

        replace_pass(trainer, run)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        assert self.watch is not None
        self.watch.step()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._end(trainer)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._end(trainer)

    def _end(self, trainer: Any) -> None:
        restore_pass(trainer)
        if self._wrapped is not None:
            trainer.strategy.model, self._wrapped = self._wrapped, None
        if self.watch is not None:
            self.watch.end()


def run_guarded(guard: StepGuard, batch: LightningBatch) -> torch.Tensor | None:
    """Forward and backward of one batch, in as many micro-batches as fit."""
    skipped = False

    def run(part: Any, share: float, last: bool) -> torch.Tensor:
        nonlocal skipped
        loss = batch.forward(part)
        if loss is None:  # training_step wants this batch to be skipped
            skipped = True
            return torch.zeros((), device=guard.device)
        batch.backward(loss if share == 1 else loss * share)
        return loss.detach() * share

    batch.drop_gradients()
    found = guard.backward(batch.data, lambda _, part: batch.forward(part), run)
    return None if skipped else found


def _why_not(trainer: Any, module: Any) -> str:
    """Why a step cannot be guarded; empty where it can."""
    if not module.automatic_optimization:
        return "this module optimises by itself (automatic_optimization = False); use oomproof.Guard in training_step"
    strategy = trainer.strategy
    alone = trainer.world_size == 1 and type(strategy).__name__ == "SingleDeviceStrategy"
    if not alone and not isinstance(strategy.model, torch.nn.parallel.DistributedDataParallel):
        return (
            f"{type(strategy).__name__} talks to other processes during forward and backward, where one that fails "
            "leaves the others waiting; one device and strategy='ddp' are guarded"
        )
    return ""
