"""All that oomproof uses of Detectron2's trainers and models beyond their documented interface (0.6, and main of 2024).

Nothing here imports Detectron2: anything with these attributes will do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

DEFAULT_CONFIG = "detectron2.config.defaults._C"
"""under which name scripts import the config with all defaults, which ``get_cfg`` copies"""


def next_batch(trainer: Any) -> Any:
    """The next batch of a SimpleTrainer's data loader."""
    return next(trainer._data_loader_iter)


def metrics_writer(trainer: Any) -> Callable[..., Any]:
    """write(losses, seconds that data took): raises FloatingPointError where a loss is infinite or NaN."""
    write: Callable[..., Any] = trainer._write_metrics
    return write


def inner_trainer(trainer: Any) -> Any:
    """The trainer that a DefaultTrainer keeps inside; None for any other."""
    return getattr(trainer, "_trainer", None)


def has_moving_average(model: Any) -> bool:
    """RetinaNet and FCOS divide their losses by a moving average of positive anchors."""
    return hasattr(model, "_ema_update")


def update_average(model: Any, name: str, value: float, initial: float) -> float:
    average: float = model._ema_update(name, value, initial)
    return average


@contextmanager
def averaging_by(model: Any, update: Callable[..., float]) -> Iterator[None]:
    """For a while the model's average is moved by ``update``."""
    if not has_moving_average(model):
        yield
        return
    model._ema_update = update
    try:
        yield
    finally:
        del model._ema_update


@contextmanager
def sampling_by(heads: type, sample: Callable[..., Any]) -> Iterator[None]:
    """For a while heads of this class draw their samples by ``sample(plain, heads, matched, labels, classes)``, where
    ``plain`` is their own way."""
    plain = heads._sample_proposals  # type: ignore[attr-defined]  # Detectron2 has no types

    def sample_proposals(self: Any, *given: Any) -> Any:
        return sample(plain, self, *given)

    with patch.object(heads, "_sample_proposals", sample_proposals):
        yield
