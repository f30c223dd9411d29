"""One situation: a structure that was traced, with more knobs turned by what-if. What it holds, what it takes to stay
within a room, and a bound for that which is quickly told."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from oomproof.memory.timeline import PHASES, Timeline
from oomproof.plan import recompute, what_if
from oomproof.plan.cost import HOST_LINK, Speed
from oomproof.plan.recompute import Choice, Question
from oomproof.sources.job import PROMISES, Knob, Option, Settings

Turned = tuple[Knob, Option]
"""a knob and the option it is turned to"""

PENALTY = {"identical": 0.002, "equivalent": 0.02, "different": 0.05}
"""time that a change must save, as a part of the step, to be worth making: plans are short, and promises kept"""
_UPDATE = PHASES.index("optimizer")

WHAT_IF: dict[str, Callable[[Timeline, Any], Timeline]] = {
    "zero_grad": lambda step, value: what_if.gradients_dropped_first(step),
    "update": lambda step, value: what_if.updated_one_by_one(step),
    "matching": lambda step, value: what_if.matched_in_parts(step),
    "optimizer_state": lambda step, value: what_if.state_elsewhere(step, 8 if value == "8bit" else 0),
}
"""knobs whose effect follows from a trace without them, in the order in which effects build on each other"""


@dataclass(frozen=True, eq=False)
class Structure:
    """A job with some knobs turned that no what-if covers, traced for a number of images."""

    turned: tuple[Turned, ...]
    settings: Settings
    step: Timeline
    """with the least scratch that kernels can do with"""
    images: int
    lasting: int
    """bytes that are held all the time besides"""
    correction: float = 1.0
    """what a full trace found, as a factor of the estimate"""


@dataclass(frozen=True)
class Way:
    """Everything that is turned, and what it should come to."""

    given: tuple[Turned, ...]
    """knobs of the estimate, the present micro-batch among them"""
    choice: Choice
    images: int
    seconds: float
    """of one image"""
    peak: int
    structure: Structure = field(repr=False)

    @property
    def turned(self) -> tuple[Turned, ...]:
        """Knobs that are not where they were."""
        every = (*self.structure.turned, *self.given)
        return tuple((knob, option) for knob, option in every if option is not knob.options[0])

    @property
    def promise(self) -> str:
        return max((promise_of(*each) for each in self.turned), key=PROMISES.index, default=PROMISES[0])

    @property
    def price(self) -> float:
        """What ways are compared by: seconds an image, and something for every change."""
        changes = sum(PENALTY[promise_of(knob, option)] + option.harm for knob, option in self.turned)
        return self.seconds * (1 + changes + (PENALTY["identical"] if self.choice.modules else 0))

    @property
    def harm(self) -> float:
        return sum(option.harm for knob, option in self.turned if promise_of(knob, option) == "different")

    @property
    def changed(self) -> dict[str, Any]:
        """The settings that differ from the job as it was."""
        changed: dict[str, Any] = {}
        for _, option in self.turned:
            changed |= option.settings
        return changed | ({"checkpoint": self.choice.setting} if self.choice.modules else {})


def promise_of(knob: Knob, option: Option) -> str:
    return option.promise or knob.promise


class Steps:
    """Steps by what-if, and what could be computed again in them; each is worked out once. Some what-ifs leave a step
    as it is: then the question is the same too."""

    def __init__(self, speed: Speed, recomputes: bool) -> None:
        self.speed, self.recomputes = speed, recomputes
        self._known: dict[tuple[int, Hashable, Hashable], tuple[Timeline, Timeline]] = {}
        self._questions: dict[int, Question] = {}
        self._forbidden: frozenset[str] = frozenset()

    def after(self, step: Timeline, what: Callable[..., Timeline], how: Hashable = ()) -> Timeline:
        """``what(step, how)``. The step that it was made from is kept too, so that no other can get its id."""
        key = (id(step), what, how)
        if key not in self._known:
            self._known[key] = step, what(step) if how == () else what(step, how)
        return self._known[key][1]

    def question(self, step: Timeline, images: int, scale: float) -> Question:
        if id(step) not in self._questions:
            asked = recompute.ask(step, self.speed, images, scale=scale, without=self._forbidden)
            self._questions[id(step)] = asked
        return self._questions[id(step)]

    def forbid(self, paths: Iterable[str]) -> None:
        """Modules that turned out not to be computable again."""
        self._forbidden |= frozenset(paths)
        self._questions.clear()


class Situation:
    """A structure with more knobs turned, by what-if."""

    def __init__(self, structure: Structure, given: tuple[Turned, ...], steps: Steps) -> None:
        self.structure, self.given, self._steps = structure, given, steps
        self.micro, self.count, self.travels = structure.images, int(structure.settings.get("accumulate", 1)), 0
        for knob, option in given:
            if knob.role == "batch":
                self.micro = next(size for name, size in option.settings.items() if name != "accumulate")
                self.count = option.settings["accumulate"]
            if option.settings.get("optimizer_state") == "host":
                self.travels = what_if.state_bytes(structure.step)
        self.scale = self.micro / structure.images
        turned = {knob.name: option.value for knob, option in given}
        step = steps.after(structure.step, what_if.with_images, self.scale)
        if "gradients" in turned:
            step = steps.after(step, what_if.gradients_used_at_once)
        if self.count > 1:
            step = steps.after(step, what_if.accumulated)
        for name, what in WHAT_IF.items():
            if name in turned:
                step = steps.after(step, what, turned[name])
        self.step = step

    @property
    def question(self) -> Question:
        return self._steps.question(self.step, self.structure.images, self.scale)

    @cached_property
    def peak(self) -> int:
        return int(self.step.curve()[what_if.step_start(self.step) :].max(initial=0))

    @cached_property
    def _plain_seconds(self) -> float:
        return seconds_of(self.step, self._steps.speed, self.micro, self.count, self.travels)

    def fits(self, room: int) -> bool:
        """With nothing computed again."""
        return self.peak <= self._budget(room)

    def may_fit(self, room: int) -> bool:
        """With something computed again, as far as is quickly told: false is sure, true is not."""
        return self.fits(room) or (self._steps.recomputes and self.question.floor <= self._budget(room))

    def solved(self, room: int) -> Way | None:
        """With the modules computed again that this room asks for."""
        if self.fits(room):
            return self.bare()
        choice = recompute.cheapest(self.question, self._budget(room)) if self._steps.recomputes else None
        return None if choice is None else self.way(choice)

    def unless_dearer(self, other: Way, room: int) -> Way | None:
        """As ``solved``, where that costs no more than another way."""
        if self.least(room, other.price) > other.price:
            return None
        way = self.solved(room)
        return way if way is not None and way.price <= other.price else None

    def least(self, room: int, enough: float = math.inf) -> float:
        """A price that no way within the room is below. Where it is ``enough`` with no time for what is computed again,
        that time is not looked into."""
        if self.fits(room):
            return self.bare().price
        again = Choice(("some",), 0.0, 0)
        price = self.way(again).price
        if price >= enough or not self._steps.recomputes:
            return price
        return self.way(replace(again, seconds=recompute.at_least(self.question, self._budget(room)))).price

    def bare(self) -> Way:
        """With nothing computed again, whether it fits or not."""
        return self.way(Choice((), 0.0, self.peak))

    def smallest(self) -> Way:
        """With everything computed again that saves memory."""
        return self.way(recompute.smallest(self.question)) if self._steps.recomputes else self.bare()

    def way(self, choice: Choice) -> Way:
        seconds = self._plain_seconds + choice.seconds / self.micro
        peak = int((choice.peak + self.structure.lasting) * self.structure.correction)
        return Way(self.given, choice, self.micro, seconds, peak, self.structure)

    def _budget(self, room: int) -> int:
        return int(room / self.structure.correction) - self.structure.lasting


def seconds_of(step: Timeline, speed: Speed, images: int, count: int, travels: int) -> float:
    """Of one image: ``count`` micro-batches of ``images``, of which the step shows one, and one update, for which
    ``travels`` bytes of state come from the host and go back."""
    seconds = speed.seconds(step.work)
    update = step.work.phase == _UPDATE
    every = float(seconds[~update].sum())
    once = float(seconds[update].sum()) + 2 * travels / HOST_LINK
    # A step from a file shows no work: any time will do, as long as it can be divided by.
    return max(every * count + once, speed.launch) / (images * count)


def corrected(structure: Structure, factor: float) -> Structure:
    return replace(structure, correction=structure.correction * factor)
