"""A way to train: everything that is turned, and what it should come to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from oomproof.plan.estimates.recomputable import RecomputedModules
from oomproof.plan.estimates.traced_step import TracedStep
from oomproof.plan.turned_knobs import Turned, describe_turned, promise_of, weakest_promise

PENALTY = {"identical": 0.002, "equivalent": 0.02, "different": 0.05}
"""time that a change must save, as a part of the step, to be worth making: plans are short, and promises kept"""


@dataclass(frozen=True)
class Way:
    """Knobs turned, modules computed again, and by estimate the peak and the time of it."""

    given: tuple[Turned, ...]
    """knobs of the estimate, the present micro-batch among them"""
    recomputed: RecomputedModules
    images: int
    seconds: float
    """of one image"""
    peak: int
    step: TracedStep = field(repr=False)
    """that it is estimated from"""

    @property
    def turned(self) -> tuple[Turned, ...]:
        """Knobs that are not where they were."""
        every = (*self.step.turned, *self.given)
        return tuple((knob, option) for knob, option in every if option is not knob.options[0])

    @property
    def words(self) -> str:
        return describe_turned(self.turned, self.recomputed.modules)

    @property
    def promise(self) -> str:
        return weakest_promise(self.turned)

    @property
    def price(self) -> float:
        """What ways are compared by: seconds an image, and something for every change."""
        changes = sum(PENALTY[promise_of(knob, option)] + option.harm for knob, option in self.turned)
        return self.seconds * (1 + changes + (PENALTY["identical"] if self.recomputed.modules else 0))

    @property
    def harm(self) -> float:
        return sum(option.harm for knob, option in self.turned if promise_of(knob, option) == "different")

    @property
    def changed(self) -> dict[str, Any]:
        """The settings that differ from the job as it was."""
        changed: dict[str, Any] = {}
        for _, option in self.turned:
            changed |= option.settings
        return changed | ({"checkpoint": self.recomputed.setting} if self.recomputed.modules else {})
