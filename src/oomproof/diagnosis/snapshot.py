"""A PyTorch memory snapshot as a Diagnosis: what was held at the peak, by which lines, and whether the floor rises."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from oomproof.diagnosis import advice
from oomproof.diagnosis.amounts import number, text
from oomproof.diagnosis.causes import places, rank_causes
from oomproof.diagnosis.diagnose import describe_facts
from oomproof.diagnosis.diagnosis import Cause, Diagnosis
from oomproof.diagnosis.facts import Facts, Setup

if TYPE_CHECKING:
    from oomproof.memory.timeline import Timeline

PARTS = 8
LINES = 5


def explain_snapshot(path: Path) -> Diagnosis:
    from oomproof.memory.files.snapshot import load_snapshot

    timeline = load_snapshot(path)
    facts = Facts(setup=Setup(framework="torch"))
    causes = tuple(
        replace(cause, next=advice.advise_next_step(cause.id, facts)) for cause in rank_causes(_causes(timeline))
    )
    first, peak = causes[0], timeline.peak()
    known = {
        **describe_facts(facts),
        "family": "snapshot",
        "where": "device",
        "allocated": int(peak.bytes),
        "reserved": timeline.about.reserved or None,
        "frames": [line for line, _ in _lines(timeline, peak.tick)],
        "device": f"GPU {timeline.about.device}",
    }
    return Diagnosis(first.verdict, first.why, first.next, first.id, causes, known)


def _causes(timeline: Timeline) -> Iterator[Cause]:
    peak = timeline.peak()
    held = _lines(timeline, peak.tick)
    evidence = tuple(f"{text(size)} {line}" for line, size in held)
    most = f"{held[0][0]} holds the most, {text(held[0][1])}" if held else "no block was alive"
    others = [*_leak(timeline), *_fragmentation(timeline, evidence)]
    yield from others
    yield Cause(
        "batch_too_big",
        0.5,
        f"device memory: {text(peak.bytes)} in live tensors at the peak; {most}",
        "this is what was alive at the peak of the recording"
        if others
        else "nothing is kept from step to step and the allocator is not fragmented: the step itself needs it",
        evidence,
    )
    for line, size in held[:2]:
        if places.MATCHING.search(line) and size > 0.1 * peak.bytes:
            why = f"{text(size)} of {text(peak.bytes)} come from a line that compares every box with every anchor"
            yield Cause("gt_boxes", 0.8, f"device memory: {line} holds {text(size)} at the peak", why, evidence)
        elif places.POSTPROCESSING.search(line) and size > 0.1 * peak.bytes:
            why = f"{text(size)} of {text(peak.bytes)} come from evaluation's own work on masks and predictions"
            yield Cause("eval_postprocess", 0.8, f"device memory: {line} holds {text(size)} at the peak", why, evidence)


def _fragmentation(timeline: Timeline, evidence: tuple[str, ...]) -> Iterator[Cause]:
    peak, reserved = timeline.peak(), timeline.about.reserved
    idle = reserved - peak.bytes
    if idle > 0.25 * reserved:
        yield Cause(
            "fragmentation",
            0.6,
            f"device memory: fragmented; the allocator held up to {text(reserved)} for {text(peak.bytes)} of tensors",
            f"reserved {number(reserved)} - allocated {number(peak.bytes)} = {number(idle)} GiB idle at the most",
            evidence,
        )


def _leak(timeline: Timeline) -> Iterator[Cause]:
    """The floor between steps rises: a leak shows there, never in the peak."""
    curve = timeline.curve()
    size = len(curve) // PARTS
    if size < 4:
        return
    ticks = [part * size + int(curve[part * size : (part + 1) * size].argmin()) for part in range(1, PARTS)]
    floors = [int(curve[tick]) for tick in ticks]
    rise = floors[-1] - floors[0]
    if rise < max(1 << 20, 0.1 * max(floors)) or any(after <= before for before, after in pairwise(floors)):
        return
    before, after = timeline.by_owner(ticks[0]), timeline.by_owner(ticks[-1])
    grown = sorted(((held - before.get(line, 0), line) for line, held in after.items()), reverse=True)[:LINES]
    names = tuple(f"{text(more)} more from {line}" for more, line in grown if more > 0)
    yield Cause(
        "leak",
        0.88,
        f"device memory: what stays between steps grows by {text(rise)} over the "
        f"recording; most of it from {grown[0][1]}",
        f"the floor rises in every part of it, from {text(floors[0])} to {text(floors[-1])}",
        names,
    )


def _lines(timeline: Timeline, tick: int) -> list[tuple[str, int]]:
    held = sorted(timeline.by_owner(tick).items(), key=lambda item: -item[1])
    return [(line, int(size)) for line, size in held[:LINES]]
