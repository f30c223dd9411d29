"""What would have to be allowed, where nothing that is allowed fits."""

from __future__ import annotations

from collections.abc import Sequence

from oomproof.plan import another_training, selection
from oomproof.plan.search import Search
from oomproof.plan.ways import Structure
from oomproof.plan.wording import described
from oomproof.sources.job import PROMISES, Knob

MOST_TRACES = 8


def needs(search: Search, base: Sequence[Structure], every: Sequence[Knob], keep: str) -> tuple[str, ...]:
    """Options of the command, each with what it would lead to; by estimate."""
    found: list[str] = []
    words = "--allow" if keep != PROMISES[0] else "--keep equivalent --allow"
    if keep == PROMISES[0]:
        wider = search.allowing(selection.allowed(every, PROMISES[1], ()))
        way = wider.promising()
        if way is not None:
            return (f"--keep equivalent: {described(way.turned, way)} would fit",)
    else:
        wider = search
    traced = search.tracing.count
    for knob in every:
        if knob.promise != PROMISES[2] or knob.name in search.by_name or search.tracing.count - traced > MOST_TRACES:
            continue
        more = wider.allowing((*wider.knobs, knob))
        enough = _enough(more, base, knob)
        if enough:
            found.append(f"{words} {knob.name}: {enough} would fit")
    if not found:
        least = search.on_device(min(search.thriftiest(structure).peak for structure in base)) / 2**30
        found.append(f"no knob of this job is enough: it needs about {least:.2f} GiB at least")
    return tuple(found)


def _enough(search: Search, base: Sequence[Structure], knob: Knob) -> str:
    """The least that has to be made of one knob, in words; empty where no value of it is enough."""
    for turned, structures in another_training.harms(search, base, [knob]):
        if any(search.ways(structure, structures) for structure in structures):
            return described(turned)
    return ""
