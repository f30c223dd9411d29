"""Ways to train: for one traced step, every micro-batch and every place for the optimizer's state, each with the
modules that have to be computed again, its peak and its time per image. All of it estimated from one trace."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from copy import copy

from oomproof.plan.estimates.recomputable import RecomputedModules
from oomproof.plan.estimates.roofline import Speed
from oomproof.plan.estimates.traced_step import TracedStep
from oomproof.plan.estimates.variant import Variant, WhatIfs
from oomproof.plan.estimates.way import Way
from oomproof.plan.problem import FREE
from oomproof.plan.turned_knobs import Turned
from oomproof.sources.job import Knob

SLIGHT, ROUGH = 0.005, 0.02
"""a way that could be better by no more than this is not looked into: in a search, and in a drawing"""


class Ways:
    """Ways by what-if. Variants are kept: a search asks about the same ones again, for other budgets."""

    def __init__(self, speed: Speed, knobs: Iterable[Knob], forbidden: frozenset[str] = frozenset()) -> None:
        self.knobs = {knob.name: knob for knob in knobs}
        self._variants: dict[tuple[int, ...], Variant] = {}
        self._what_ifs = WhatIfs(speed, "checkpoint" in self.knobs, forbidden)

    def find_fitting(
        self, step: TracedStep, room: int, batches: Iterable[Turned | None], best: float = math.inf
    ) -> list[Way]:
        """The ways of a step that stay within ``room`` bytes, one for each of ``batches`` and each place for the
        optimizer's state; what cannot be better than ``best`` is not looked at."""
        states: list[Turned | None] = [None]
        if "optimizer_state" in self.knobs:
            knob = self.knobs["optimizer_state"]
            states += [(knob, option) for option in knob.options[1:]]
        pairs = itertools.product(batches, states)
        given = [tuple(each for each in pair if each is not None) for pair in pairs]
        found = []
        # Those that fit as they are come first, since they are quickly told; then the rest, the most promising first.
        order = sorted(given, key=lambda each: (not self._fits(step, room, each), self._least(step, each)))
        for turned in order:
            way = self._find_way(step, room, turned, best)
            if way is not None:
                found.append(way)
                best = min(best, way.price)
        return found

    def roughly(self, starts: Iterable[tuple[TracedStep, Turned | None]], room: int) -> Way | None:
        """The cheapest way within ``room`` bytes, for a drawing. ``starts`` are traced steps, each with a micro-batch;
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
            way = next(filter(None, (each.solve(room) for each in turns)), None)
            best = min(filter(None, (best, way)), key=lambda way: way.price, default=None)
        return best

    def _in_turn(self, step: TracedStep, batch: Turned | None, room: int) -> tuple[Variant, list[Variant]]:
        """As it is; and of that and the thriftier ones those that could stay within the room, up to the first that
        surely does."""
        given = () if batch is None else (batch,)
        plain, found = self._variant(step, given), list[Variant]()
        for turned in ([], *self._thrifty(step, given)):
            variant = self._variant(step, (*given, *turned))
            if variant.may_fit(room):
                found.append(variant)
            if variant.fits(room):
                break
        return plain, found

    def without(self, paths: Iterable[str]) -> Ways:
        """Where some modules turned out not to be computable again."""
        forbidden = self._what_ifs.forbidden | frozenset(paths)
        return Ways(self._what_ifs.speed, self.knobs.values(), forbidden)

    def bare(self, step: TracedStep, given: tuple[Turned, ...]) -> Way:
        """With nothing computed again, whether it fits or not."""
        return self._variant(step, given).bare()

    def within(self, way: Way, room: int) -> Way | None:
        """The same knobs turned, with the modules that this ``room`` asks for."""
        return self._variant(way.step, way.given).solve(room)

    def smallest(self, way: Way) -> Way:
        """The same knobs turned, with everything computed again that saves memory."""
        return self._variant(way.step, way.given).smallest()

    def least_peak(self, way: Way) -> int:
        """Bytes that no choice of modules to compute again brings a way below; quickly told, and perhaps never met."""
        variant = self._variant(way.step, way.given)
        return variant.way(RecomputedModules((), 0.0, variant.recomputable.floor)).peak

    def thriftiest(self, step: TracedStep, batch: Turned | None) -> Way:
        """The way that needs the least memory, at whatever cost."""
        given = (batch,) if batch else ()
        first, *others = (self._variant(step, (*given, *each)) for each in self._thrifty(step, given))
        least = first.smallest()
        for variant in others:
            if variant.may_fit(least.peak - 1):
                least = min(least, variant.smallest(), key=lambda way: way.peak)
        return least

    def _find_way(self, step: TracedStep, room: int, given: tuple[Turned, ...], best: float) -> Way | None:
        if self._least(step, given) >= best * (1 - SLIGHT):
            return None
        plain = self._variant(step, given)
        free = self._free(step, given)
        if not free or plain.fits(room):
            return plain.solve(room)
        # Free changes are made where they save computing something again, and only those that do.
        freed = self._variant(step, (*given, *free)).solve(room)
        if freed is None:
            return plain.solve(room)
        for each in free:
            fewer = tuple(one for one in freed.given if one[0] is not each[0])
            freed = self._variant(step, fewer).unless_dearer(freed, room) or freed
        return plain.unless_dearer(freed, room) or freed

    def _fits(self, step: TracedStep, room: int, given: tuple[Turned, ...]) -> bool:
        return self._variant(step, given).fits(room)

    def _least(self, step: TracedStep, given: tuple[Turned, ...]) -> float:
        """The price if nothing has to be computed again: none can be lower. Gradients that are used at once need not be
        added up first, so that this free change may save time too."""
        quicker = [each for each in self._free(step, given) if each[0].name == "gradients"]
        every = (given, *((*given, each) for each in quicker))
        return min(self._variant(step, each).bare().price for each in every)

    def _thrifty(self, step: TracedStep, given: tuple[Turned, ...]) -> list[list[Turned]]:
        """Everything turned that costs little time, in the ways in which it goes together."""
        state = self.knobs.get("optimizer_state")
        found = [self._free(step, given)]
        if state is not None:
            elsewhere = (state, state.options[1])
            found.append([*self._free(step, (*given, elsewhere)), elsewhere])
        return found

    def _free(self, step: TracedStep, given: tuple[Turned, ...]) -> list[Turned]:
        names = [name for name in FREE if name in self.knobs]
        if not _may_be_used_at_once(step, given):
            names = [name for name in names if name != "gradients"]
        return [(self.knobs[name], self.knobs[name].options[-1]) for name in names]

    def _variant(self, step: TracedStep, given: tuple[Turned, ...]) -> Variant:
        # A corrected step has the step and the settings of the one before: only more is taken to be needed.
        key = (id(step.timeline), id(step.settings), *(id(option) for _, option in given))
        variant = self._variants.get(key)
        if variant is None:
            variant = self._variants[key] = Variant(step, given, self._what_ifs)
        elif variant.traced is not step:
            variant = self._variants[key] = copy(variant)
            variant.traced = step
        return variant


def _may_be_used_at_once(step: TracedStep, given: tuple[Turned, ...]) -> bool:
    """Whether gradients need not wait for the update, as changes/torch/gradients.py has it."""
    settings = dict(step.settings)
    for _, option in given:
        settings |= option.settings
    several = settings.get("accumulate", 1) > 1 and step.timeline.about.at_once != "any"
    return not several and settings.get("precision") != "fp16" and settings.get("optimizer_state") == "device"
