"""One guarded iteration of a Detectron2 trainer, or of anything with its attributes; nothing imports it here."""

from __future__ import annotations

import time
from typing import Any

import torch

from oomproof.changes.detectron2.accumulating import forward_in_precision, simple_trainer
from oomproof.errors import JobError
from oomproof.frameworks.detectron2 import metrics_writer, next_batch
from oomproof.run.guard.guard import Guard

KEPT = "losses are divided by what each micro-batch has, as on so many GPUs"


def guard_of(trainer: Any, plan: Any = None, **options: Any) -> Guard:
    """A guard for the trainer's model and optimizer, with its GradScaler if it has one."""
    inner = simple_trainer(trainer)
    guard = Guard(inner.model, inner.optimizer, plan, getattr(inner, "grad_scaler", None), **options)
    guard.kept = KEPT
    return guard


def guarded_step(trainer: Any, guard: Guard) -> None:
    """What ``run_step`` of Detectron2's trainers does, with a guard."""
    trainer = simple_trainer(trainer)
    if not trainer.model.training:
        raise JobError(
            "the model is in evaluation mode at the start of an iteration; call model.train() after evaluating"
        )
    start = time.perf_counter()
    batch = next_batch(trainer)
    waited = time.perf_counter() - start
    seen: list[tuple[int, dict[str, torch.Tensor]]] = []

    def loss(model: torch.nn.Module, part: Any) -> Any:
        found = forward_in_precision(trainer, model, part)
        losses = {"total_loss": found} if isinstance(found, torch.Tensor) else found
        seen.append((len(part), {name: each.detach() for name, each in losses.items()}))
        return losses

    def finish() -> None:
        if hasattr(trainer, "after_backward"):
            trainer.after_backward()
        metrics_writer(trainer)(_together(seen, len(batch)), waited)

    guard.step(batch, loss, finish)


def _together(seen: list[tuple[int, dict[str, torch.Tensor]]], images: int) -> dict[str, torch.Tensor]:
    """The losses of the last pass over all images, each micro-batch by its images. Before it come attempts that failed,
    and what the guard tried to see what losses are divided by."""
    together: dict[str, torch.Tensor] = {}
    left = images
    for count, losses in reversed(seen):
        if left <= 0:
            break
        left -= count
        for name, value in losses.items():
            together[name] = together.get(name, torch.zeros_like(value)) + value * (count / images)
    return together
