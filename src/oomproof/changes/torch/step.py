"""A training step that keeps to a plan, for one's own training loop.

step = oomproof.Step(model, optimizer, loss=lambda model, batch: model(*batch), settings="train.oomproof.json")
for batch in loader:            # batches of the size the training always had
    total = step(batch)         # micro-batches, backward, one update
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.optim.swa_utils import AveragedModel

from oomproof.changes.settings_file import read_settings_and_own
from oomproof.changes.torch.micro_batches import images_in, move_batch, part_sizes, split
from oomproof.changes.torch.passes import Loss, Passes, check_training, in_channels_last, prepare_model
from oomproof.changes.torch.training import training_from
from oomproof.errors import InputError


class Step:
    """``step(batch)`` trains on one batch as ``settings`` say, and returns its loss, without a graph.

    ``settings``: a mapping, a Plan, or the path of a settings file. They are applied to model and optimizer once, here;
    settings that belong to the job (image_size, boxes ...) are left to it. The model should be on its device; it may be
    wrapped in DistributedDataParallel, which then exchanges gradients once an update.

    A batch is cut into micro-batches of at most ``settings["batch"]`` images, or into ``accumulate`` parts; each goes
    to the device when its turn comes. Losses are taken to be means over images, so each counts by its share of them.
    Where the loss is divided by something else, ``weight(batch)`` tells it, such as the number of boxes; then the sum
    is the loss of the whole batch again.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        loss: Loss,
        settings: Any = None,
        weight: Callable[[Any], float] | None = None,
    ) -> None:
        self.settings = as_mapping(settings)
        self.weight = weight
        training = check_training(training_from(self.settings))
        self._largest = largest_micro_batch(self.settings)
        given = type(optimizer).__name__
        if training.optimizer not in ("own", given.lower()):
            raise InputError(
                f"the settings are for optimizer={training.optimizer}, and the step was given {given}: make the "
                "optimizer that the settings name, or plan again with your own"
            )
        prepare_model(model, training)
        self._passes = Passes(model, optimizer, loss, training)

    @property
    def average(self) -> AveragedModel | None:
        """The averaged model, with ``ema``."""
        return self._passes.average

    @property
    def scaler(self) -> torch.amp.GradScaler | None:
        """With fp16: to be saved and loaded with the optimizer."""
        return self._passes.scaler

    def __call__(self, batch: Any) -> torch.Tensor:
        passes = self._passes
        parts = split(batch, self._count(batch))
        shares = shares_of(parts, batch, self.weight)
        total = torch.zeros((), device=passes.device)
        passes.begin()
        for place, (part, share) in enumerate(zip(parts, shares, strict=True), 1):
            here = move_batch(part, passes.device)
            if passes.training.channels_last:
                here = in_channels_last(here)
            total += passes.backward(here, share, last=place == len(parts))
        passes.update()
        return total

    def _count(self, batch: Any) -> int:
        if self._largest is None:
            return self._passes.training.accumulate
        try:
            return max(1, math.ceil(images_in(batch) / self._largest))
        except InputError:
            if self._passes.training.accumulate > 1:
                raise
            return 1  # nothing has to be split, so nothing need be counted


def shares_of(parts: list[Any], batch: Any, weight: Callable[[Any], float] | None) -> list[float]:
    """What the loss of each part of the batch counts for: its images, or what ``weight`` says that it is divided by."""
    if len(parts) == 1:
        return [1.0]
    weights = [float(weight(part)) for part in parts] if weight else []
    if any(each < 0 or not math.isfinite(each) for each in weights):
        raise InputError(f"weight(batch) must give a number from 0 on for every micro-batch; it gave {weights}")
    if not sum(weights):  # no boxes in any image: nothing to go by but the images
        weights = [float(size) for size in part_sizes(images_in(batch), len(parts))]
    return [each / sum(weights) for each in weights]


def as_mapping(settings: Any) -> Mapping[str, Any]:
    """What a step may go by: a parameter of the job's own code is the job's affair, the size of batches apart."""
    if settings is None:
        return {}
    own: Collection[str] = getattr(settings, "own", ())
    if isinstance(settings, (str, Path)):
        settings, own = read_settings_and_own(settings)
    settings = getattr(settings, "settings", settings)
    if not isinstance(settings, Mapping):
        raise InputError(
            "Step(settings=...) takes a mapping, a Plan or the path of a settings file; it was given a "
            f"{type(settings).__name__}"
        )
    return {name: value for name, value in settings.items() if name == "batch" or name not in own}


def largest_micro_batch(settings: Mapping[str, Any]) -> int | None:
    largest = settings.get("batch")
    if largest is None:
        return None
    if not isinstance(largest, int) or isinstance(largest, bool) or largest < 1:
        raise InputError(f"batch must be a whole number of images from 1 on; got {largest!r}")
    return largest
