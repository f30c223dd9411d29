"""Ways to train: for one traced structure, every micro-batch and every place for the optimizer's state, each with the
modules that have to be computed again, its peak and its time per image. All of it estimated from one trace."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
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
    "optimizer_state": lambda step, option: what_if.state_elsewhere(step, 0.0 if option.value == "host" else QUANTISED),
}
"""knobs whose effect follows from a trace without them"""
QUANTISED = what_if.QUANTISED
FREE = ("zero_grad", "update", "matching")
"""of these, the ones that cost no time to speak of"""


@dataclass(frozen=True)
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


def lean_enough(
    structure: Structure, speed: Speed, room: int, batches: Iterable[Turned | None], rest: Iterable[Knob], best: float
) -> list[Way]:
    """The ways of a structure that stay within ``room`` bytes. ``batches`` are the micro-batches to try, ``rest`` the
    other knobs; what cannot be quicker than ``best`` is not looked at."""
    knobs = {knob.name: knob for knob in rest}
    free = tuple((knobs[name], knobs[name].options[-1]) for name in FREE if name in knobs)
    states: list[Turned | None] = [None]
    if "optimizer_state" in knobs:
        states += [(knobs["optimizer_state"], option) for option in knobs["optimizer_state"].options[1:]]
    found = []
    for batch in batches:
        for state in states:
            way = _way(structure, speed, room, (batch, state), free, "checkpoint" in knobs, best)
            if way is not None:
                found.append(way)
                best = min(best, way.price)
    return found


def thriftiest(structure: Structure, speed: Speed, batch: Turned | None, rest: Iterable[Knob]) -> Way:
    """The way that needs the least memory, at whatever cost."""
    knobs = {knob.name: knob for knob in rest}
    turned = [(knobs[name], knobs[name].options[-1]) for name in FREE if name in knobs]
    if "optimizer_state" in knobs:
        turned.append((knobs["optimizer_state"], knobs["optimizer_state"].options[1]))
    situation = _Situation(structure, speed, (*((batch,) if batch else ()), *turned))
    choice = recompute.smallest(situation.question()) if "checkpoint" in knobs else None
    return situation.way(choice or recompute.Choice((), 0.0, situation.peak))


def within(way: Way, speed: Speed, room: int, *, recomputing: bool = True) -> Way | None:
    """The same knobs turned, with the modules that this ``room`` asks for."""
    return _Situation(way.structure, speed, way.given).solved(room, recomputing)


def bare(structure: Structure, speed: Speed, given: tuple[Turned, ...]) -> Way:
    """With nothing computed again, whether it fits or not."""
    situation = _Situation(structure, speed, given)
    return situation.way(recompute.Choice((), 0.0, situation.peak))


def smallest(way: Way, speed: Speed) -> Way:
    """The same knobs turned, with everything computed again that saves memory."""
    situation = _Situation(way.structure, speed, way.given)
    return situation.way(recompute.smallest(situation.question()))


def _way(
    structure: Structure,
    speed: Speed,
    room: int,
    turned: tuple[Turned | None, ...],
    free: tuple[Turned, ...],
    recomputing: bool,
    best: float,
) -> Way | None:
    given = tuple(each for each in turned if each is not None)
    bare = _Situation(structure, speed, given)
    if bare.way(recompute.Choice((), 0.0, 0)).price >= best:
        return None
    way = bare.solved(room, recomputing)
    if not free or (way is not None and not way.choice.modules):
        return way
    # Free changes are made where they save computing something again, and only those that do.
    freed = _Situation(structure, speed, (*given, *free)).solved(room, recomputing)
    if freed is None or (way is not None and way.price <= freed.price):
        return way
    for each in free:
        fewer = tuple(one for one in freed.given if one is not each)
        without = _Situation(structure, speed, fewer).solved(room, recomputing)
        if without is not None and without.price <= freed.price:
            freed = without
    return freed


class _Situation:
    """A structure with more knobs turned, by what-if."""

    def __init__(self, structure: Structure, speed: Speed, given: tuple[Turned, ...]) -> None:
        self.structure, self.speed, self.given = structure, speed, given
        self.micro, self.count, self.travels = structure.images, int(structure.settings.get("accumulate", 1)), 0
        for _, option in given:
            if "accumulate" in option.settings:
                self.micro = next(size for name, size in option.settings.items() if name != "accumulate")
                self.count = option.settings["accumulate"]
            if option.settings.get("optimizer_state") == "host":
                self.travels = what_if.state_bytes(structure.step)
        self.scale = self.micro / structure.images
        step = what_if.scaled(structure.step, self.scale)
        if self.count > 1:
            step = what_if.accumulated(step)
        for knob, option in given:
            if knob.name in WHAT_IF:
                step = WHAT_IF[knob.name](step, option)
        self.step = step

    def question(self) -> recompute.Question:
        return recompute.ask(self.step, self.speed, self.structure.images, scale=self.scale)

    @property
    def peak(self) -> int:
        return int(self.step.curve()[what_if.step_start(self.step) :].max(initial=0))

    def solved(self, room: int, recomputing: bool) -> Way | None:
        budget = int(room / self.structure.correction) - self.structure.lasting
        if not recomputing:
            return self.way(recompute.Choice((), 0.0, self.peak)) if self.peak <= budget else None
        choice = recompute.cheapest(self.question(), budget)
        return None if choice is None else self.way(choice)

    def way(self, choice: recompute.Choice) -> Way:
        seconds = seconds_of(self.step, self.speed, self.micro, self.count, self.travels, 1, choice.seconds)
        peak = int((choice.peak + self.structure.lasting) * self.structure.correction)
        return Way(self.given, choice, self.micro, seconds, peak, self.structure)


def seconds_of(
    step: Timeline, speed: Speed, images: int, count: int, travels: int, shown: int, again: float = 0.0
) -> float:
    """Of one image: ``count`` micro-batches of ``images``, of which the step shows ``shown``, and one update, for which
    ``travels`` bytes of state come from the host and go back. ``again`` seconds a micro-batch are computed again."""
    seconds = speed.seconds(step.work)
    update = step.work.phase == _UPDATE
    every = float(seconds[~update].sum()) / shown + again
    once = float(seconds[update].sum()) + 2 * travels / HOST_LINK
    return (every * count + once) / (images * count)


def corrected(structure: Structure, factor: float) -> Structure:
    return replace(structure, correction=structure.correction * factor)
