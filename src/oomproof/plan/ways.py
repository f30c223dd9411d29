"""Ways to train: for one traced structure, every micro-batch and every place for the optimizer's state, each with the
modules that have to be computed again, its peak and its time per image. All of it estimated from one trace."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from oomproof.memory.timeline import PHASES, Timeline
from oomproof.plan import recompute, what_if
from oomproof.plan.cost import HOST_LINK, Speed
from oomproof.sources.job import PROMISES, Knob, Option

Turned = tuple[Knob, Option]
"""a knob and the option it is turned to"""

PENALTY = {"identical": 0.002, "equivalent": 0.02, "different": 0.05}
"""time that a change must save, as a part of the step, to be worth making: plans are short, and promises kept"""
_UPDATE = PHASES.index("optimizer")

WHAT_IF: dict[str, Callable[[Timeline, Option], Timeline]] = {
    "zero_grad": lambda step, option: what_if.gradients_dropped_first(step),
    "update": lambda step, option: what_if.updated_one_by_one(step),
    "matching": lambda step, option: what_if.matched_in_parts(step),
    "optimizer_state": lambda step, option: what_if.state_elsewhere(step, 8 if option.value == "8bit" else 0),
}
"""knobs whose effect follows from a trace without them, in the order in which effects build on each other"""
SLIGHT, ROUGH = 0.005, 0.02
"""a way that could be better by no more than this is not looked into: in a search, and in a drawing"""
FREE = ("zero_grad", "gradients", "update", "matching")
"""knobs of an estimate that cost no time to speak of"""


@dataclass(frozen=True, eq=False)
class Structure:
    """A job with some knobs turned that no what-if covers, traced for a number of images."""

    turned: tuple[Turned, ...]
    settings: Mapping[str, Any]
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
    choice: recompute.Choice
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


class Estimator:
    """Ways by what-if. Situations are kept: a search asks about the same ones again, for other budgets."""

    def __init__(self, speed: Speed, knobs: Iterable[Knob]) -> None:
        self.speed = speed
        self.knobs = {knob.name: knob for knob in knobs}
        self.recomputes = "checkpoint" in self.knobs
        self._situations: dict[tuple[int, ...], _Situation] = {}
        self._forbidden: frozenset[str] = frozenset()

    def fitting(
        self, structure: Structure, room: int, batches: Iterable[Turned | None], best: float = math.inf
    ) -> list[Way]:
        """The ways of a structure that stay within ``room`` bytes, one for each of ``batches`` and each place for the
        optimizer's state; what cannot be better than ``best`` is not looked at."""
        states: list[Turned | None] = [None]
        if "optimizer_state" in self.knobs:
            knob = self.knobs["optimizer_state"]
            states += [(knob, option) for option in knob.options[1:]]
        pairs = itertools.product(batches, states)
        given = [tuple(each for each in pair if each is not None) for pair in pairs]
        found = []
        # Those that fit as they are come first, since they are quickly told; then the rest, the most promising first.
        order = sorted(given, key=lambda each: (not self._fits(structure, room, each), self._least(structure, each)))
        for turned in order:
            way = self._fitting(structure, room, turned, best)
            if way is not None:
                found.append(way)
                best = min(best, way.price)
        return found

    def roughly(self, structure: Structure, room: int, batches: Iterable[Turned | None], best: float) -> list[Way]:
        """As ``fitting``, for a drawing: optimizer state and free changes are left alone, or all turned together."""
        found = []
        for batch in batches:
            given = () if batch is None else (batch,)
            if self._least(structure, given) >= best * (1 - ROUGH):
                continue
            way = self._situation(structure, given).solved(room, self.recomputes)
            for thrifty in self._thrifty(structure, given):
                way = way or self._situation(structure, (*given, *thrifty)).solved(room, self.recomputes)
            if way is not None:
                found.append(way)
                best = min(best, way.price)
        return found

    def forbid(self, paths: Iterable[str]) -> None:
        """Modules that turned out not to be computable again."""
        self._forbidden |= frozenset(paths)
        self._situations.clear()

    def bare(self, structure: Structure, given: tuple[Turned, ...]) -> Way:
        """With nothing computed again, whether it fits or not."""
        situation = self._situation(structure, given)
        return situation.way(recompute.Choice((), 0.0, situation.peak))

    def within(self, way: Way, room: int) -> Way | None:
        """The same knobs turned, with the modules that this ``room`` asks for."""
        return self._situation(way.structure, way.given).solved(room, self.recomputes)

    def smallest(self, way: Way) -> Way:
        """The same knobs turned, with everything computed again that saves memory."""
        if not self.recomputes:
            return way
        situation = self._situation(way.structure, way.given)
        return situation.way(recompute.smallest(situation.question))

    def thriftiest(self, structure: Structure, batch: Turned | None) -> Way:
        """The way that needs the least memory, at whatever cost."""
        given = (batch,) if batch else ()
        ways = [self.bare(structure, (*given, *each)) for each in self._thrifty(structure, given)]
        return min((self.smallest(way) for way in ways), key=lambda way: way.peak)

    def _fitting(self, structure: Structure, room: int, given: tuple[Turned, ...], best: float) -> Way | None:
        if self._least(structure, given) >= best * (1 - SLIGHT):
            return None
        way = self._situation(structure, given).solved(room, self.recomputes)
        free = self._free(structure, given)
        if not free or (way is not None and not way.choice.modules):
            return way
        # Free changes are made where they save computing something again, and only those that do.
        freed = self._situation(structure, (*given, *free)).solved(room, self.recomputes)
        if freed is None:
            return way
        for each in free:
            fewer = tuple(one for one in freed.given if one[0] is not each[0])
            without = self._situation(structure, fewer).solved(room, self.recomputes)
            if without is not None and without.price <= freed.price:
                freed = without
        return way if way is not None and way.price <= freed.price else freed

    def _fits(self, structure: Structure, room: int, given: tuple[Turned, ...]) -> bool:
        return self._situation(structure, given).solved(room, recomputing=False) is not None

    def _least(self, structure: Structure, given: tuple[Turned, ...]) -> float:
        """The price if nothing has to be computed again: none can be lower."""
        return self._situation(structure, given).way(recompute.Choice((), 0.0, 0)).price

    def _thrifty(self, structure: Structure, given: tuple[Turned, ...]) -> list[list[Turned]]:
        """Everything turned that costs little time, in the ways in which it goes together."""
        state = self.knobs.get("optimizer_state")
        found = [self._free(structure, given)]
        if state is not None:
            elsewhere = (state, state.options[1])
            found.append([*self._free(structure, (*given, elsewhere)), elsewhere])
        return found

    def _free(self, structure: Structure, given: tuple[Turned, ...]) -> list[Turned]:
        names = [name for name in FREE if name in self.knobs]
        if not _may_be_used_at_once(structure, given):
            names = [name for name in names if name != "gradients"]
        return [(self.knobs[name], self.knobs[name].options[-1]) for name in names]

    def _situation(self, structure: Structure, given: tuple[Turned, ...]) -> _Situation:
        # A corrected structure has the step and the settings of the one before: only more is taken to be needed.
        key = (id(structure.step), id(structure.settings), *(id(option) for _, option in given))
        situation = self._situations.get(key)
        if situation is None:
            situation = self._situations[key] = _Situation(structure, self.speed, given, self._forbidden)
        elif situation.structure is not structure:
            situation = self._situations[key] = copy(situation)
            situation.structure = structure
        return situation


class _Situation:
    """A structure with more knobs turned, by what-if."""

    def __init__(
        self, structure: Structure, speed: Speed, given: tuple[Turned, ...], forbidden: frozenset[str]
    ) -> None:
        self.structure, self.speed, self.given, self.forbidden = structure, speed, given, forbidden
        self.micro, self.count, self.travels = structure.images, int(structure.settings.get("accumulate", 1)), 0
        for _, option in given:
            if "accumulate" in option.settings:
                self.micro = next(size for name, size in option.settings.items() if name != "accumulate")
                self.count = option.settings["accumulate"]
            if option.settings.get("optimizer_state") == "host":
                self.travels = what_if.state_bytes(structure.step)
        self.scale = self.micro / structure.images
        step = what_if.with_images(structure.step, self.scale)
        turned = {knob.name: option for knob, option in given}
        if "gradients" in turned:
            step = what_if.gradients_used_at_once(step)
        if self.count > 1:
            step = what_if.accumulated(step)
        for name, what in WHAT_IF.items():
            if name in turned:
                step = what(step, turned[name])
        self.step = step

    @cached_property
    def question(self) -> recompute.Question:
        return recompute.ask(self.step, self.speed, self.structure.images, scale=self.scale, without=self.forbidden)

    @cached_property
    def peak(self) -> int:
        return int(self.step.curve()[what_if.step_start(self.step) :].max(initial=0))

    @cached_property
    def _plain_seconds(self) -> float:
        return seconds_of(self.step, self.speed, self.micro, self.count, self.travels)

    def solved(self, room: int, recomputing: bool) -> Way | None:
        budget = int(room / self.structure.correction) - self.structure.lasting
        if not recomputing:
            return self.way(recompute.Choice((), 0.0, self.peak)) if self.peak <= budget else None
        choice = recompute.cheapest(self.question, budget)
        return None if choice is None else self.way(choice)

    def way(self, choice: recompute.Choice) -> Way:
        seconds = self._plain_seconds + choice.seconds / self.micro
        peak = int((choice.peak + self.structure.lasting) * self.structure.correction)
        return Way(self.given, choice, self.micro, seconds, peak, self.structure)


def _may_be_used_at_once(structure: Structure, given: tuple[Turned, ...]) -> bool:
    """Whether gradients need not wait for the update, as run/torch/gradients.py has it."""
    settings = dict(structure.settings)
    for _, option in given:
        settings |= option.settings
    several = settings.get("accumulate", 1) > 1 and structure.step.about.get("at_once") != "any"
    return not several and settings.get("precision") != "fp16" and settings.get("optimizer_state") == "device"


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
