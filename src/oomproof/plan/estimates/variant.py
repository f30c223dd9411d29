"""A variant: a traced step with more knobs turned by what-if. What it holds, what it takes to stay within a room, and
a bound for that which is quickly told."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import replace
from functools import cached_property
from typing import Any

from oomproof.memory.timeline import Timeline
from oomproof.plan.estimates import least_time, recomputable, what_if
from oomproof.plan.estimates.recomputable import Recomputable, RecomputedModules
from oomproof.plan.estimates.roofline import Speed, seconds_of
from oomproof.plan.estimates.traced_step import TracedStep
from oomproof.plan.estimates.way import Way
from oomproof.plan.turned_knobs import Turned

WHAT_IF: dict[str, Callable[[Timeline, Any], Timeline]] = {
    "zero_grad": lambda step, value: what_if.drop_gradients_first(step),
    "update": lambda step, value: what_if.update_one_by_one(step),
    "matching": lambda step, value: what_if.match_in_parts(step),
    "optimizer_state": lambda step, value: what_if.state_elsewhere(step, 8 if value == "8bit" else 0),
}
"""knobs whose effect follows from a trace without them, in the order in which effects build on each other"""


class WhatIfs:
    """Steps by what-if, and what could be computed again in them; each is worked out once. Some what-ifs leave a step
    as it is: then the same modules could be computed again."""

    def __init__(self, speed: Speed, recomputes: bool, forbidden: frozenset[str] = frozenset()) -> None:
        self.speed, self.recomputes, self.forbidden = speed, recomputes, forbidden
        self._known: dict[tuple[int, Hashable, Hashable], tuple[Timeline, Timeline]] = {}
        self._recomputable: dict[int, Recomputable] = {}

    def after(self, step: Timeline, what: Callable[..., Timeline], how: Hashable = ()) -> Timeline:
        """``what(step, how)``. The step that it was made from is kept too, so that no other can get its id."""
        key = (id(step), what, how)
        if key not in self._known:
            self._known[key] = step, what(step) if how == () else what(step, how)
        return self._known[key][1]

    def recomputable(self, step: Timeline, images: int, scale: float) -> Recomputable:
        if id(step) not in self._recomputable:
            found = recomputable.find_recomputable(step, self.speed, images, scale=scale, without=self.forbidden)
            self._recomputable[id(step)] = found
        return self._recomputable[id(step)]


class Variant:
    """A traced step with more knobs turned, by what-if."""

    def __init__(self, traced: TracedStep, given: tuple[Turned, ...], what_ifs: WhatIfs) -> None:
        self.traced, self.given, self._what_ifs = traced, given, what_ifs
        self.micro, self.count, self.travels = traced.images, int(traced.settings.get("accumulate", 1)), 0
        for knob, option in given:
            if knob.role == "batch":
                self.micro = next(size for name, size in option.settings.items() if name != "accumulate")
                self.count = int(option.settings.get("accumulate", 1))
            if option.settings.get("optimizer_state") == "host":
                self.travels = what_if.state_bytes(traced.timeline)
        self.scale = self.micro / traced.images
        turned = {knob.name: option.value for knob, option in given}
        step = what_ifs.after(traced.timeline, what_if.with_images, self.scale)
        if "gradients" in turned:
            step = what_ifs.after(step, what_if.use_gradients_at_once)
        if self.count > 1:
            step = what_ifs.after(step, what_if.accumulate_gradients)
        for name, what in WHAT_IF.items():
            if name in turned:
                step = what_ifs.after(step, what, turned[name])
        self.step = step

    @property
    def recomputable(self) -> Recomputable:
        return self._what_ifs.recomputable(self.step, self.traced.images, self.scale)

    @cached_property
    def peak(self) -> int:
        return int(self.step.curve()[what_if.step_start(self.step) :].max(initial=0))

    @cached_property
    def _plain_seconds(self) -> float:
        return seconds_of(self.step, self._what_ifs.speed, self.micro, self.count, self.travels)

    def fits(self, room: int) -> bool:
        """With nothing computed again."""
        return self.peak <= self._budget(room)

    def may_fit(self, room: int) -> bool:
        """With something computed again, as far as is quickly told: false is sure, true is not."""
        return self.fits(room) or (self._what_ifs.recomputes and self.recomputable.floor <= self._budget(room))

    def solve(self, room: int) -> Way | None:
        """With the modules computed again that this room asks for."""
        if self.fits(room):
            return self.bare()
        recomputed = least_time.cheapest(self.recomputable, self._budget(room)) if self._what_ifs.recomputes else None
        return None if recomputed is None else self.way(recomputed)

    def unless_dearer(self, other: Way, room: int) -> Way | None:
        """As ``solve``, where that costs no more than another way."""
        if self.least(room, other.price) > other.price:
            return None
        way = self.solve(room)
        return way if way is not None and way.price <= other.price else None

    def least(self, room: int, enough: float = math.inf) -> float:
        """A price that no way within the room is below. Where it is ``enough`` with no time for what is computed again,
        that time is not looked into."""
        if self.fits(room):
            return self.bare().price
        again = RecomputedModules(("some",), 0.0, 0)
        price = self.way(again).price
        if price >= enough or not self._what_ifs.recomputes:
            return price
        return self.way(replace(again, seconds=least_time.least_seconds(self.recomputable, self._budget(room)))).price

    def bare(self) -> Way:
        """With nothing computed again, whether it fits or not."""
        return self.way(RecomputedModules((), 0.0, self.peak))

    def smallest(self) -> Way:
        """With everything computed again that saves memory."""
        return self.way(least_time.smallest(self.recomputable)) if self._what_ifs.recomputes else self.bare()

    def way(self, recomputed: RecomputedModules) -> Way:
        seconds = self._plain_seconds + recomputed.seconds / self.micro
        peak = int((recomputed.peak + self.traced.lasting) * self.traced.correction)
        return Way(self.given, recomputed, self.micro, seconds, peak, self.traced)

    def _budget(self, room: int) -> int:
        return int(room / self.traced.correction) - self.traced.lasting
