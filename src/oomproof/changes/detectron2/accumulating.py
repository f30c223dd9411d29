"""One iteration of a Detectron2 trainer with several micro-batches: forward and backward for each, then one update.

The trainer is Detectron2's SimpleTrainer or AMPTrainer, or anything with their attributes; nothing here imports them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from oomproof.errors import InputError, JobError
from oomproof.frameworks.detectron2 import inner_trainer, metrics_writer, next_batch


@dataclass(frozen=True)
class MicroBatch:
    """A micro-batch, what its losses count for (all alike, or each by its name), and the random numbers it begins with
    where they are to be those of an earlier run."""

    batch: Any
    weight: float | Mapping[str, float]
    random: tuple[torch.Tensor, ...] | None = None


Forward = Callable[[Any], Any]
Weigh = Callable[[torch.nn.Module, Forward, Sequence[Any]], AbstractContextManager[Iterable[MicroBatch]]]
"""weigh(model, forward, batches): gives each micro-batch the weights of its losses, for as long as they are trained"""


def accumulated_step(trainer: Any, count: int, weigh: Weigh | None = None) -> None:
    """What ``run_step`` of Detectron2's trainers does, with the gradients of ``count`` batches of the data loader.

    Each counts the same, as on ``count`` GPUs. ``weigh`` gives them other weights, and wants to see all of them first.
    """
    count = check_count(count)
    trainer = simple_trainer(trainer)
    if not trainer.model.training:
        raise JobError(
            "the model is in evaluation mode at the start of an iteration; call model.train() after evaluating"
        )
    waits: list[float] = []

    def draw_batch() -> Any:
        start = time.perf_counter()
        batch = next_batch(trainer)
        waits.append(time.perf_counter() - start)
        return batch

    if weigh is None:  # drawn one by one: only one at a time is in memory
        parts: AbstractContextManager[Iterable[MicroBatch]] = nullcontext(
            MicroBatch(draw_batch(), 1 / count) for _ in range(count)
        )
    else:
        model = bare(trainer.model)
        if getattr(trainer, "async_write_metrics", False):
            # Detectron2 has one stack of storages for all threads: what is still being written would go to a storage
            # that only counts.
            trainer.concurrent_executor.submit(int).result()
        parts = weigh(
            model, lambda batch: forward_in_precision(trainer, model, batch), [draw_batch() for _ in range(count)]
        )
    losses: dict[str, torch.Tensor] = {}
    with parts as each:
        for place, part in enumerate(each):
            for name, loss in _pass(trainer, part, first=place == 0, last=place == count - 1).items():
                losses[name] = losses[name] + loss if name in losses else loss
    _finish(trainer, losses, sum(waits))


def simple_trainer(trainer: Any) -> Any:
    """The trainer that has the model: a DefaultTrainer keeps it inside."""
    inner = inner_trainer(trainer)
    if inner is None:
        return trainer
    inner.iter = trainer.iter
    return inner


def check_count(count: Any) -> int:
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise InputError(f"the number of micro-batches must be a whole number from 1 on; got {count!r}")
    return count


def bare(model: torch.nn.Module) -> torch.nn.Module:
    """The model itself, where DistributedDataParallel is around it."""
    return model.module if isinstance(model, torch.nn.parallel.DistributedDataParallel) else model


def device_of(model: torch.nn.Module) -> torch.device:
    return next((parameter.device for parameter in model.parameters()), torch.device("cpu"))


def _pass(trainer: Any, part: MicroBatch, first: bool, last: bool) -> dict[str, torch.Tensor]:
    """Adds the gradients of one micro-batch; returns its part of each loss, without a graph."""
    # Attributes that Detectron2 0.6 did not have yet are asked for with their later defaults.
    early = getattr(trainer, "zero_grad_before_forward", False)
    scaler = getattr(trainer, "grad_scaler", None)
    if part.random is not None:
        restore_random(part.random, device_of(trainer.model))
    if first and early:
        trainer.optimizer.zero_grad()
    # GPUs exchange gradients once for an update, and that is decided in the forward pass.
    exchange_later = not last and hasattr(trainer.model, "no_sync")
    with trainer.model.no_sync() if exchange_later else nullcontext():
        losses = _weigh_losses(forward_in_precision(trainer, trainer.model, part.batch), part.weight)
        total = sum(losses.values())
        if first and not early:
            trainer.optimizer.zero_grad()
        (total if scaler is None else scaler.scale(total)).backward()
    return {name: loss.detach() for name, loss in losses.items()}


def forward_in_precision(trainer: Any, model: torch.nn.Module, batch: Any) -> Any:
    """What the model returns, under autocast where the trainer uses it."""
    if getattr(trainer, "grad_scaler", None) is None:
        return model(batch)
    with torch.autocast(device_of(model).type, dtype=getattr(trainer, "precision", torch.float16)):
        return model(batch)


def _weigh_losses(found: Any, weight: float | Mapping[str, float]) -> dict[str, torch.Tensor]:
    """The losses by name, each by its weight. A single loss has the name that Detectron2 gives it."""
    losses = {"total_loss": found} if isinstance(found, torch.Tensor) else found
    if not isinstance(losses, Mapping) or not losses:
        raise JobError(
            f"a model that is trained must return a tensor or a dict of losses; it returned {type(found).__name__}"
        )
    weights = weight if isinstance(weight, Mapping) else dict.fromkeys(losses, weight)
    unknown = [name for name in losses if name not in weights]
    if unknown:
        raise JobError(
            f"{', '.join(unknown)}: a loss that was not there when the micro-batches were weighed; leave out "
            "whole_batch, which needs the same losses in every run of the model"
        )
    # A weight of 1 is left out, so that one micro-batch is trained to the last bit as without accumulation.
    return {name: loss if weights[name] == 1 else loss * weights[name] for name, loss in losses.items()}


def _finish(trainer: Any, losses: dict[str, torch.Tensor], waited: float) -> None:
    """Hooks, metrics and the update, in Detectron2's order."""
    scaler = getattr(trainer, "grad_scaler", None)
    if scaler is not None and getattr(trainer, "log_grad_scaler", False):
        from detectron2.utils.events import get_event_storage

        get_event_storage().put_scalar("[metric]grad_scaler", scaler.get_scale())
    if hasattr(trainer, "after_backward"):
        trainer.after_backward()
    if getattr(trainer, "async_write_metrics", False):
        trainer.concurrent_executor.submit(metrics_writer(trainer), losses, waited, iter=trainer.iter)
    else:
        metrics_writer(trainer)(losses, waited)
    if scaler is None:
        trainer.optimizer.step()
    else:
        scaler.step(trainer.optimizer)
        scaler.update()


def random_state(device: torch.device) -> tuple[torch.Tensor, ...]:
    """Where the generators stand that a model on ``device`` draws from."""
    state: tuple[torch.Tensor, ...] = (torch.get_rng_state(),)
    return (*state, torch.cuda.get_rng_state(device)) if device.type == "cuda" else state


def restore_random(state: tuple[torch.Tensor, ...], device: torch.device) -> None:
    torch.set_rng_state(state[0])
    if len(state) > 1:
        torch.cuda.set_rng_state(state[1], device)
