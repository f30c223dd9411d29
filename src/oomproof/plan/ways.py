"""Ways to train: for one traced structure, every micro-batch and every place for the optimizer's state, each with the
modules that have to be computed again, its peak and its time per image. All of it estimated from one trace."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from copy import copy

from oomproof.plan.cost import Speed
from oomproof.plan.situation import (
    PENALTY,
    Situation,
    Steps,
    Structure,
    Turned,
    Way,
    corrected,
    promise_of,
    seconds_of,
)
from oomproof.sources.job import Knob

__all__ = ["FREE", "PENALTY", "Estimator", "Structure", "Turned", "Way", "corrected", "promise_of", "seconds_of"]

SLIGHT, ROUGH = 0.005, 0.02
"""a way that could be better by no more than this is not looked into: in a search, and in a drawing"""
FREE = ("zero_grad", "gradients", "update", "matching")
"""knobs of an estimate that cost no time to speak of"""


class Estimator:
    """Ways by what-if. Situations are kept: a search asks about the same ones again, for other budgets."""

    def __init__(self, speed: Speed, knobs: Iterable[Knob]) -> None:
        self.knobs = {knob.name: knob for knob in knobs}
        self._situations: dict[tuple[int, ...], Situation] = {}
        self._steps = Steps(speed, "checkpoint" in self.knobs)

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

    def roughly(self, starts: Iterable[tuple[Structure, Turned | None]], room: int) -> Way | None:
        """The cheapest way within ``room`` bytes, for a drawing. ``starts`` are structures, each with a micro-batch;
        where one does not fit, free changes are all made together, and then optimizer state is moved too."""
        asked = [(plain, turns) for each in starts for plain, turns in [self._in_turn(*each, room)] if turns]
        best: Way | None = None
        # What fits with nothing computed again comes first, since it is quickly told. Few of the others can be better,
        # as their bounds show; the most promising of them come first.
        asked.sort(key=lambda each: 0.0 if each[1][0].fits(room) else each[1][0].least(room, enough=0.0))
        for plain, turns in asked:
            if best is not None and turns[0].fits(room) and plain.bare().price >= best.price * (1 - ROUGH):
                continue
            if best is not None and all(each.least(room, best.price) >= best.price for each in turns):
                continue
            way = next(filter(None, (each.solved(room) for each in turns)), None)
            best = min(filter(None, (best, way)), key=lambda way: way.price, default=None)
        return best

    def _in_turn(self, structure: Structure, batch: Turned | None, room: int) -> tuple[Situation, list[Situation]]:
        """As it is; and of that and the thriftier ones those that could stay within the room, up to the first that
        surely does."""
        given = () if batch is None else (batch,)
        plain, found = self._situation(structure, given), list[Situation]()
        for turned in ([], *self._thrifty(structure, given)):
            situation = self._situation(structure, (*given, *turned))
            if situation.may_fit(room):
                found.append(situation)
            if situation.fits(room):
                break
        return plain, found

    def forbid(self, paths: Iterable[str]) -> None:
        """Modules that turned out not to be computable again."""
        self._steps.forbid(paths)

    def bare(self, structure: Structure, given: tuple[Turned, ...]) -> Way:
        """With nothing computed again, whether it fits or not."""
        return self._situation(structure, given).bare()

    def within(self, way: Way, room: int) -> Way | None:
        """The same knobs turned, with the modules that this ``room`` asks for."""
        return self._situation(way.structure, way.given).solved(room)

    def smallest(self, way: Way) -> Way:
        """The same knobs turned, with everything computed again that saves memory."""
        return self._situation(way.structure, way.given).smallest()

    def thriftiest(self, structure: Structure, batch: Turned | None) -> Way:
        """The way that needs the least memory, at whatever cost."""
        given = (batch,) if batch else ()
        first, *others = (self._situation(structure, (*given, *each)) for each in self._thrifty(structure, given))
        least = first.smallest()
        for situation in others:
            if situation.may_fit(least.peak - 1):
                least = min(least, situation.smallest(), key=lambda way: way.peak)
        return least

    def _fitting(self, structure: Structure, room: int, given: tuple[Turned, ...], best: float) -> Way | None:
        if self._least(structure, given) >= best * (1 - SLIGHT):
            return None
        plain = self._situation(structure, given)
        free = self._free(structure, given)
        if not free or plain.fits(room):
            return plain.solved(room)
        # Free changes are made where they save computing something again, and only those that do.
        freed = self._situation(structure, (*given, *free)).solved(room)
        if freed is None:
            return plain.solved(room)
        for each in free:
            fewer = tuple(one for one in freed.given if one[0] is not each[0])
            freed = self._situation(structure, fewer).unless_dearer(freed, room) or freed
        return plain.unless_dearer(freed, room) or freed

    def _fits(self, structure: Structure, room: int, given: tuple[Turned, ...]) -> bool:
        return self._situation(structure, given).fits(room)

    def _least(self, structure: Structure, given: tuple[Turned, ...]) -> float:
        """The price if nothing has to be computed again: none can be lower. Gradients that are used at once need not be
        added up first, so that this free change may save time too."""
        quicker = [each for each in self._free(structure, given) if each[0].name == "gradients"]
        every = (given, *((*given, each) for each in quicker))
        return min(self._situation(structure, each).bare().price for each in every)

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

    def _situation(self, structure: Structure, given: tuple[Turned, ...]) -> Situation:
        # A corrected structure has the step and the settings of the one before: only more is taken to be needed.
        key = (id(structure.step), id(structure.settings), *(id(option) for _, option in given))
        situation = self._situations.get(key)
        if situation is None:
            situation = self._situations[key] = Situation(structure, given, self._steps)
        elif situation.structure is not structure:
            situation = self._situations[key] = copy(situation)
            situation.structure = structure
        return situation


def _may_be_used_at_once(structure: Structure, given: tuple[Turned, ...]) -> bool:
    """Whether gradients need not wait for the update, as changes/torch/gradients.py has it."""
    settings = dict(structure.settings)
    for _, option in given:
        settings |= option.settings
    several = settings.get("accumulate", 1) > 1 and structure.step.about.at_once != "any"
    return not several and settings.get("precision") != "fp16" and settings.get("optimizer_state") == "device"
