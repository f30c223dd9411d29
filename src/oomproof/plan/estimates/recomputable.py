"""What could be computed again in a step: every module that can be is a candidate, whole or a few images at a time.

What choosing it would do to live memory at every tick follows from the traced step (candidates.py). Which set to take,
least_time.py finds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oomproof.memory.timeline import Ints, Timeline
from oomproof.plan.estimates.candidates import Candidate, StepView
from oomproof.plan.estimates.roofline import Speed
from oomproof.plan.estimates.what_if import step_start

MOST_CANDIDATES, MOST_CHUNKED = 64, 12
"""modules that are looked at, and those of them also a few images at a time: the ones that save the most"""


@dataclass(frozen=True)
class RecomputedModules:
    """Modules that are computed again, as the setting ``checkpoint`` has them, the time of that for one step, and the
    live memory that is left."""

    modules: tuple[str, ...]
    seconds: float
    peak: int

    @property
    def setting(self) -> str:
        return ",".join(self.modules) or "none"


@dataclass(frozen=True)
class Recomputable:
    """What could be computed again in a step: live bytes at every tick, and what each candidate would do to them."""

    live: Ints
    candidates: tuple[Candidate, ...]

    @property
    def peak(self) -> int:
        return int(self.live.max(initial=0))

    @cached_property
    def effects(self) -> Ints:
        """One row for each candidate."""
        return np.stack([each.effect for each in self.candidates])

    @cached_property
    def seconds(self) -> NDArray[np.float64]:
        """Of each candidate."""
        return np.array([each.seconds for each in self.candidates])

    @cached_property
    def by_path(self) -> dict[str, list[int]]:
        """Places of the candidates: a module as a whole, and in parts."""
        found: dict[str, list[int]] = defaultdict(list)
        for place, each in enumerate(self.candidates):
            found[each.path].append(place)
        return dict(found)

    @cached_property
    def floor(self) -> int:
        """Bytes that no set stays below: at every tick what the best set for that tick alone would leave."""
        return int((self.live + least_sums(self, self.effects)).max(initial=0)) if self.candidates else self.peak

    @cached_property
    def exclusive(self) -> NDArray[np.float64]:
        """A module is not computed again both by itself and inside another: one row for every innermost module."""
        rows = set()
        for path in self.by_path:
            row = np.zeros(len(self.candidates), dtype=bool)
            row[[place for each in paths_around(path) for place in self.by_path.get(each, ())]] = True
            rows.add(tuple(row.tolist()))
        return np.array([row for row in rows if sum(row) > 1], dtype=np.float64).reshape(-1, len(self.candidates))

    @cached_property
    def watched(self) -> list[int]:
        """Ticks that are constraints, whatever the budget: what one answer breaks is watched for the next too."""
        return hills(self.live)

    @cached_property
    def answers(self) -> dict[int, RecomputedModules | None]:
        """By budget: a search comes back to the same ones."""
        return {}

    def after(self, chosen: NDArray[np.bool_]) -> Ints:
        live = self.live.copy()
        for place in np.flatnonzero(chosen):
            live += self.candidates[place].effect
        return live


def find_recomputable(
    timeline: Timeline,
    speed: Speed,
    images: int,
    *,
    scale: float = 1.0,
    without: Iterable[str] = (),
) -> Recomputable:
    """What could be computed again in a step that was traced with ``images`` images and is scaled to ``scale`` times as
    many; ``without`` names modules that are not candidates."""
    start = step_start(timeline)
    live = timeline.curve()[start:]
    view = StepView(timeline, speed, start, live)
    found: dict[str, list[int]] = defaultdict(list)
    for place, call in enumerate(timeline.modules):
        found[call.path].append(place)
    for path in (timeline.about.model, *without):  # all of it again would save nothing
        found.pop(path, None)
    whole = (view.candidate(path, places) for path, places in found.items() if _may(timeline, places))
    ranked = sorted((each for each in whole if each is not None), key=lambda each: int(each.effect.min()))
    candidates = ranked[:MOST_CANDIDATES]
    for each in candidates[:MOST_CHUNKED]:
        places = found[each.path]
        calls = [timeline.modules[place] for place in places]
        per_box = each.path in timeline.about.per_box  # sees boxes, not images: these too are treated one by one
        if all(call.separable and (call.images == images or per_box) for call in calls):
            rows = round(min(call.images for call in calls) * scale)
            candidates += [part for size in _sizes(rows) if (part := view.candidate(each.path, places, size, scale))]
    return Recomputable(live, tuple(candidates))


def least_sums(step: Recomputable, values: NDArray[Any]) -> NDArray[Any]:
    """The least that the ``values`` of a set add up to, in each column by itself; there is one row for a candidate. A
    module is computed again as a whole or in parts, or what is inside it module by module, or not at all."""
    nothing = np.zeros_like(values[0])
    inside: dict[str, NDArray[Any]] = {}
    """by module, what its inner modules come to"""
    total: NDArray[Any] = nothing
    # From the end of the alphabet, so that inner modules come before those they are in.
    for path in sorted(step.by_path, reverse=True):
        best = np.minimum.reduce([inside.get(path, nothing), *values[step.by_path[path]]])
        outer = next((each for each in paths_around(path) if each != path and each in step.by_path), None)
        if outer is None:
            total = total + best
        else:
            inside[outer] = inside.get(outer, nothing) + best
    return total


def paths_around(path: str) -> Iterator[str]:
    """A module and those it is in, from the innermost."""
    yield path
    while "." in path:
        path = path.rpartition(".")[0]
        yield path


def hills(live: Ints, count: int = 48) -> list[int]:
    """The highest tick of each of ``count`` stretches."""
    edges = np.linspace(0, len(live), count + 1).astype(int)
    return [int(a + live[a:b].argmax()) for a, b in pairwise(edges) if b > a]


def _may(timeline: Timeline, places: list[int]) -> bool:
    calls = [timeline.modules[place] for place in places]
    return all(call.repeatable and call.leave > call.enter for call in calls) and "(" not in calls[0].path


def _sizes(rows: int) -> list[int]:
    """A half, a quarter ... of the rows, down to a single one where there are few."""
    return list(dict.fromkeys(-(-rows // parts) for parts in (2, 4, 8, 16) if parts <= rows))
