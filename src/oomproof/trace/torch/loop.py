"""The training loop that is traced: a job's pieces, put together and stepped by the code of run/torch.

The very same loop runs for real in the tests, where its memory is measured.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch.optim.swa_utils import AveragedModel

from oomproof.changes.torch.passes import Passes, in_channels_last, prepare_model
from oomproof.changes.torch.training import OPTIMIZERS, Training
from oomproof.changes.torch.trees import tensors_of
from oomproof.errors import CannotDo, JobError
from oomproof.frameworks.torch import storage_key
from oomproof.memory.validation import Validation


@dataclass(frozen=True)
class Pieces:
    """A job in plain pieces. ``step``, where given, is the user's whole step and replaces loss, backward and update."""

    model: Callable[[], torch.nn.Module]
    batch: Callable[[], Any]
    loss: Callable[[torch.nn.Module, Any], Any] | None = None
    optimizer: Callable[[Any], torch.optim.Optimizer] = OPTIMIZERS["sgd"]
    step: Callable[[torch.nn.Module, Any, torch.optim.Optimizer], Any] | None = None
    validate: Callable[[torch.nn.Module, Any], Any] | None = None
    """what is done with a batch between epochs; what it returns are predictions"""


class Loop:
    """Model, batch and optimizer, ready to step."""

    def __init__(self, pieces: Pieces, training: Training) -> None:
        self.pieces, self.training = pieces, training
        self.model = _narrow_model(pieces, training.width)()
        if not isinstance(self.model, torch.nn.Module):
            raise JobError(f"the job's model factory must return a torch.nn.Module; it returned {_kind(self.model)}")
        self.model.train()
        prepare_model(self.model, training)

    def load(self) -> None:
        """Batch and optimizer, once the weights are where they stay."""
        self.batch = self.pieces.batch()
        if self.training.channels_last:
            self.batch = in_channels_last(self.batch)
        parameters = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        if not parameters:
            raise JobError("the model has no parameter to train (requires_grad is False on all of them)")
        make = OPTIMIZERS.get(self.training.optimizer, self.pieces.optimizer)
        self.optimizer = make(parameters)
        if not isinstance(self.optimizer, torch.optim.Optimizer):
            raise JobError(
                f"the job's optimizer factory must return a torch.optim.Optimizer; it returned {_kind(self.optimizer)}"
            )
        self.passes = Passes(self.model, self.optimizer, self.pieces.loss, self.training)

    def step(self) -> None:
        """One step on the job's batch, or on as many micro-batches of its size as ``accumulate`` says."""
        if self.pieces.step is not None:
            self.pieces.step(self.model, self.batch, self.optimizer)
            return
        self.passes.begin()
        for place in range(1, self.training.accumulate + 1):
            self.passes.backward(self.batch, 1 / self.training.accumulate, last=place == self.training.accumulate)
        self.passes.update()

    def last_of_step(self, first: bool = False) -> None:
        """The last micro-batch of a step, and the update; ``first``: as if no micro-batch had come before it."""
        if self.training.accumulate == 1 or self.pieces.step is not None:
            return self.step()
        (self.passes.begin if first else self.passes.resume)()
        self.passes.backward(self.batch, 1 / self.training.accumulate)
        self.passes.update()
        return None

    def validate(self, how: Validation) -> None:
        """Two batches, one after the other: the predictions of the first live until those of the second are there,
        and those of ``how.keeps`` batches until the end."""
        assert self.pieces.validate is not None
        self.model.eval()
        with nullcontext() if how.grad else torch.no_grad():
            predictions = self.pieces.validate(self.model, self.batch)
            kept = [predictions, self._stand_for_others(predictions, how.keeps - 2)] if how.keeps > 1 else []
            predictions = self.pieces.validate(self.model, self.batch)
            kept.append(predictions)

    def _stand_for_others(self, predictions: Any, batches: int) -> torch.Tensor:
        """As many bytes as the predictions of so many batches have."""
        storages = {storage_key(each.untyped_storage()): each for each in tensors_of(predictions)}
        nbytes = sum(each.untyped_storage().nbytes() for each in storages.values())
        return torch.empty(max(0, batches) * nbytes, dtype=torch.uint8)

    @property
    def average(self) -> AveragedModel | None:
        return self.passes.average


def _narrow_model(pieces: Pieces, width: float) -> Callable[[], torch.nn.Module]:
    if width == 1:
        return pieces.model
    if pieces.loss is None:
        raise CannotDo("width: a job with a step of its own has no loss to find the network's graph by; use width=1")
    from oomproof.changes.torch.slim import slim_factory
    from oomproof.trace.torch.tracer import Tracer

    loss = pieces.loss
    return slim_factory(pieces.model, lambda net: loss(net, pieces.batch()), width, Tracer)


def _kind(value: Any) -> str:
    return f"{type(value).__name__}"
