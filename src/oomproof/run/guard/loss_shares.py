"""What the loss of each micro-batch counts for in that of the batch."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from oomproof.changes.torch.passes import Passes, Share, in_channels_last
from oomproof.changes.torch.step import shares_of
from oomproof.changes.torch.whole_batch import find_detector, look_at
from oomproof.run.guard import means
from oomproof.run.guard.before_step import BeforeStep
from oomproof.run.guard.failures import attempt, free_memory
from oomproof.run.guard.given_batch import copy_apart


class LossShares:
    """By ``weight`` where the user gave one, by what a detector divides its losses by, else as the losses of a few
    images are seen to join: as a mean, or as a sum."""

    def __init__(
        self,
        passes: Passes,
        before: BeforeStep,
        weight: Callable[[Any], float] | None,
        say_once: Callable[[str], None],
    ) -> None:
        self._passes, self._before, self._weight, self._say_once = passes, before, weight, say_once
        self._detector = None if weight else find_detector(passes.model)
        self._losses_join = means.UNKNOWN
        self._looks = means.Looks()

    @property
    def divisor_is_known(self) -> bool:
        return self._detector is not None or self._weight is not None

    def of(self, batch: Any, parts: list[Any]) -> tuple[list[Share], AbstractContextManager[None]]:
        """With what the model must run under, so that its parts draw as the whole batch does."""
        if len(parts) > 1 and self._detector is not None:
            passes = self._passes
            whole = look_at(self._detector, lambda part: passes.losses(self._apart(part)), parts, passes.device)
            if whole is not None:
                return list(whole.weights), whole.as_one_batch()
            self._say_once(
                f"losses of {type(self._detector).__name__} are divided by what a batch has; they can be weighed where "
                "loss(model, batch) returns the dict of losses as the model does"
            )
        if len(parts) > 1 and self._weight is None and self._find_how_losses_join(batch) == means.SUM:
            return [1.0] * len(parts), nullcontext()
        return list(shares_of(parts, batch, self._weight)), nullcontext()

    def _find_how_losses_join(self, batch: Any) -> str:
        """How the losses of images make one of a batch; told where it is neither mean nor sum, or not what it was."""
        if self._looks.is_due():
            passes = self._passes
            found, failure = attempt(
                "looking at losses",
                lambda: means.how_losses_join(
                    passes.model, lambda some: passes.losses(self._apart(some)), batch, self._looks.number
                ),
            )
            self._before.restore()  # random numbers and buffers are as before the look
            if failure is not None:
                free_memory(passes.device)
                self._say_once(
                    "how the losses of two images make one could not be looked at for want of memory; they are taken "
                    "to be a mean over images, unless Guard(weight=lambda batch: ...) says what they are divided by"
                )
                return self._losses_join
            known, self._losses_join = self._losses_join, found
            is_neither = found == means.OTHER or (known in (means.MEAN, means.SUM) and found != known)
            if is_neither and self._detector is None:  # of a detector it has been said
                self._say_once(
                    "the loss of some images is neither the mean nor the sum of their losses, so a split batch is "
                    "another training: give Guard(weight=lambda batch: ...) what it is divided by, such as its boxes"
                )
        return self._losses_join

    def _apart(self, part: Any) -> Any:
        """To be looked at: whatever a loss does to it, the batch stays as it is."""
        here = copy_apart(part, self._passes.device)
        return in_channels_last(here) if self._passes.training.channels_last else here
