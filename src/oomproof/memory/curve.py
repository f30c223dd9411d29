"""Live memory over a step, kind by kind, in as many points as a picture can show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from oomproof.memory.timeline import KINDS, PHASES, Ints, Timeline

POINTS = 600
_WORKSPACE = KINDS.index("workspace")


@dataclass(frozen=True)
class Curve:
    """Stretches of the step, each at its fullest moment: the highest point is the peak."""

    tick: Ints
    kinds: Mapping[str, Ints]
    """bytes of each kind at each point; they add up to what is live"""
    phases: tuple[tuple[int, str], ...]
    """(tick, phase) wherever another phase begins"""
    made: tuple[tuple[str, str, int], ...] = ()
    """(module, operation, bytes) of the block that was made last, at each point"""
    tensors: tuple[str, ...] = ()
    """what this block was made for, in words: a shape, a workspace; empty where it is not known"""

    @property
    def live(self) -> Ints:
        total = np.zeros(len(self.tick), dtype=np.int64)
        for held in self.kinds.values():
            total += held
        return total


def draw_curve(timeline: Timeline, points: int = POINTS) -> Curve:
    """The curve of a Timeline, in at most ``points`` points."""
    live = timeline.curve()
    edges = np.unique(np.linspace(0, len(live), min(points, len(live)) + 1).astype(np.int64))
    tick = np.array([a + live[a:b].argmax() for a, b in pairwise(edges.tolist())], dtype=np.int64)
    kinds = {}
    for number, kind in enumerate(KINDS):
        rows = timeline.kind == number
        if rows.any():
            size = timeline.bytes[rows].astype(np.float64)  # exact: a step has less than 2**53 bytes
            born = np.bincount(timeline.born[rows], size, timeline.ticks + 1)
            died = np.bincount(timeline.died[rows], size, timeline.ticks + 1)
            kinds[kind] = np.cumsum(born - died).astype(np.int64)[tick]
    marks = zip(timeline.mark_tick.tolist(), timeline.mark_phase.tolist(), strict=True)
    phases = tuple((at, PHASES[phase]) for at, phase in marks)
    rows = _find_last_made(timeline, tick)
    if not rows:
        return Curve(tick, kinds, phases, (("", "", 0),) * len(tick))
    made = ((timeline.owners[timeline.owner[row]], timeline.ops[timeline.op[row]]) for row in rows)
    return Curve(
        tick,
        kinds,
        phases,
        tuple((owner, op, int(timeline.bytes[row])) for (owner, op), row in zip(made, rows, strict=True)),
        tuple(_describe_tensor(timeline, row) for row in rows),
    )


def _describe_tensor(timeline: Timeline, row: int) -> str:
    shape = timeline.shapes[timeline.shape[row]]
    sides = "" if shape is None else f"[{', '.join(map(str, shape))}]"
    if timeline.kind[row] != _WORKSPACE:
        return sides
    return f"workspace for {sides}" if sides else "workspace"


def _find_last_made(timeline: Timeline, tick: Ints) -> list[int]:
    """The row of the block that was born last, at each tick; none where there are no blocks."""
    order = np.argsort(timeline.born, kind="stable")
    if not len(order):
        return []
    last = np.searchsorted(timeline.born[order], tick, side="right") - 1
    rows: list[int] = order[np.maximum(last, 0)].tolist()
    return rows
