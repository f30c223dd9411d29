"""What was looked at and turned down, each with the reason."""

from __future__ import annotations

from collections.abc import Sequence

from oomproof.plan.estimates.estimates import Estimates
from oomproof.plan.estimates.way import Way
from oomproof.plan.plan import Alternative
from oomproof.plan.remarks.figures import Figures
from oomproof.plan.turned_knobs import NO_CHANGE
from oomproof.sources.job import PROMISES

MOST_ALTERNATIVES = 6
MISSED = "seemed to fit, but full traces need more than was estimated"


def find_alternatives(
    estimates: Estimates, figures: Figures, looked_at: Sequence[Way], chosen: Way, time: float
) -> tuple[Alternative, ...]:
    """The ways people take by habit, and the best of each other kind that was looked at. ``time`` is that of the plan
    as it is told, which a full trace may have changed."""
    found: dict[str, Alternative] = {}
    for way in (*_habits(estimates), *_best_of_kinds(looked_at)):
        same = way.turned == chosen.turned and bool(way.recomputed.modules) == bool(chosen.recomputed.modules)
        if way.words == NO_CHANGE or same or way.words in found:
            continue
        device, its_time = figures.find(way)
        reason = MISSED if figures.has_missed(way) else _reason(estimates, way, its_time, chosen, time)
        # A change of the plan is told there with its share of the whole; by itself it comes to something else.
        words = f"{way.words} alone" if len(way.turned) == 1 and way.turned[0] in chosen.turned else way.words
        found[way.words] = Alternative(words, way.promise, device, its_time, reason)
    return tuple(list(found.values())[:MOST_ALTERNATIVES])


def _habits(estimates: Estimates) -> list[Way]:
    """What people try first: a smaller batch, half precision, recomputing; each by itself."""
    problem, room, found = estimates.problem, estimates.room.live, list[Way]()
    if problem.batch is not None and len(problem.batch.options) > 1:
        smaller = [estimates.estimate(((problem.batch, option),)) for option in problem.batch.options[1:]]
        ways = [way for way in smaller if way is not None]
        found.append(next((way for way in ways if way.peak <= room), ways[-1]))
    for knob in (knob for knob in problem.knobs if knob.role == "precision"):
        half = estimates.estimate(((knob, knob.options[-1]),))
        found += [half] if half is not None else []
    if "checkpoint" in problem.by_name:
        plain = estimates.as_it_is()
        found.append(estimates.ways.within(plain, room) or estimates.ways.smallest(plain))
    return found


def _best_of_kinds(ways: Sequence[Way]) -> list[Way]:
    """Of each set of knobs the quickest way."""
    best: dict[tuple[str, ...], Way] = {}
    for way in ways:
        kind = (*sorted(knob.name for knob, _ in way.turned), "again" if way.recomputed.modules else "")
        if kind not in best or way.price < best[kind].price:
            best[kind] = way
    return sorted(best.values(), key=lambda way: way.price)


def _reason(estimates: Estimates, way: Way, its_time: float, chosen: Way, time: float) -> str:
    if way.peak > estimates.room.live:
        return "does not fit"
    slower = its_time / time - 1
    if slower > 0.005:
        return f"fits, but takes {100 * slower:.0f} % more time per image than this plan"
    if way.price < chosen.price:  # it was tried, or what was tried taught otherwise
        return MISSED
    if PROMISES.index(way.promise) > PROMISES.index(chosen.promise):
        return f"fits, but is only {way.promise}, and no quicker to speak of"
    if way.harm > chosen.harm:
        return "fits, but does more harm"
    return "fits as well, with more changes for the same time"
