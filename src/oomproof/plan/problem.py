"""What a plan is asked for. Never changes while it is worked on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from oomproof.memory.cards.devices import Device
from oomproof.plan.estimates.roofline import Speed, speed_of
from oomproof.plan.turned_knobs import Turned, with_turned
from oomproof.sources.job import PROMISES, Job, Knob, Settings

SMALL = 2
"""images on a GPU in the trace from which larger batches are estimated"""
FREE = ("zero_grad", "gradients", "update", "matching")
"""knobs that cost no time to speak of"""
LIMIT = "memory_limit_mb"
RUN = ("gradient_as_bucket_view", "cudnn_benchmark", "expandable_segments", "memory_growth", LIMIT)
"""knobs of the run around the step, in the order in which they are tried where a step does not fit by itself"""
ESTIMATED = (*FREE, "optimizer_state", "checkpoint", *RUN)
"""knobs that need no trace of their own"""


@dataclass(frozen=True, eq=False)
class Problem:
    """Make ``job`` fit ``device``, from ``settings`` on, by turning ``knobs`` and no others."""

    job: Job
    device: Device
    settings: Settings
    knobs: tuple[Knob, ...]
    """those that may be turned, each with the options that may be taken"""
    named: tuple[str, ...] = ()
    """knobs that the user asked for by name"""
    keep: str = PROMISES[1]
    """the weakest promise that a change may have, unless its knob is named"""
    others: tuple[Knob, ...] = ()
    """every knob that the user might still allow"""

    @cached_property
    def speed(self) -> Speed:
        return speed_of(self.device)

    @cached_property
    def by_name(self) -> dict[str, Knob]:
        return {knob.name: knob for knob in self.knobs}

    @cached_property
    def batch(self) -> Knob | None:
        """Cuts the batch into micro-batches."""
        return next((knob for knob in self.knobs if knob.role == "batch"), None)

    @property
    def batch_name(self) -> str:
        """The setting for the images of a micro-batch."""
        assert self.batch is not None
        return next(name for name in self.batch.options[0].settings if name != "accumulate")

    @cached_property
    def precision(self) -> Knob | None:
        return next((knob for knob in self.knobs if knob.role == "precision"), None)

    @property
    def images(self) -> int:
        """In one forward pass of the job as it is."""
        return self.settings.images

    @property
    def few(self) -> int:
        """Images in the traces from which larger batches are estimated."""
        return self.images if self.batch is None else min(SMALL * self.settings.sharing, self.images)

    @property
    def room_may_grow(self) -> bool:
        """The framework takes only a part of the device by itself, and may be told to take more."""
        return LIMIT in self.by_name

    def rank(self, knob: Knob) -> int:
        return list(self.by_name).index(knob.name)

    def list_retraced_knobs(self, *, all_of_them: bool = False) -> list[Knob]:
        """Knobs that want a trace of their own and make no other training. Most are tried when nothing else fits, or
        when they are named; precision always."""
        return [
            knob
            for knob in self.knobs
            if knob.name not in ESTIMATED and knob is not self.batch and knob.promise != PROMISES[2]
            if all_of_them or knob.role == "precision" or knob.name in self.named
        ]

    def with_turned(self, turned: tuple[Turned, ...]) -> Settings:
        return with_turned(self.settings, turned)

    def with_all_memory(self) -> Settings:
        """The framework is told to take what it leaves to others by itself."""
        return self.settings.with_values(self.by_name[LIMIT].options[-1].settings)

    def at_images(self, images: int, settings: Settings) -> Settings:
        """For a trace of so many images, one micro-batch of them."""
        return settings if self.batch is None else at_images(settings, self.batch_name, images)


def at_images(settings: Settings, name: str, images: int) -> Settings:
    whole = {"accumulate": 1} if "accumulate" in settings else {}
    return settings.with_values({name: images, **whole})
