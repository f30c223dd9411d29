"""The Timeline: every block of memory of a training step, from its birth to its death.

The one intermediate form of oomproof. Tracers make it; allocators, forecasts and reports read it.

Time is a counter of memory events: each birth and each death has a tick of its own. A block lives
in ``[born, died)``; a block that is never freed has ``died == ticks``.

    >>> step = Builder()
    >>> weights = step.allocate(4 << 20, kind="parameter", owner="fc", op="parameter")
    >>> step.enter("forward")
    >>> out = step.allocate(1 << 20, kind="activation", owner="fc", op="addmm")
    >>> step.free(out)
    >>> timeline = step.build()
    >>> timeline.peak().bytes == 5 << 20
    True
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oomproof.memory.about import About
from oomproof.memory.activity import ModuleCall, Work

Ints = NDArray[np.int64]
Shape = tuple[int, ...]

KINDS = ("parameter", "buffer", "gradient", "optimizer", "activation", "input", "temporary", "workspace")
PHASES = ("setup", "forward", "backward", "optimizer", "validation")
_KIND, _PHASE = ({name: place for place, name in enumerate(names)} for names in (KINDS, PHASES))


@dataclass(frozen=True)
class Calls:
    """Operations whose kernels may take scratch memory that no tensor shows (convolutions, sorts ...).

    ``specs[spec[i]]`` is JSON with what is needed to price call ``i``. A call owns the two ticks
    ``tick`` and ``tick + 1``: scratch priced for it lives exactly between them.
    """

    tick: Ints
    owner: Ints
    phase: Ints
    spec: Ints
    specs: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.tick)


@dataclass(frozen=True)
class Peak:
    """The fullest moment: how many bytes are live, and what was being allocated then."""

    bytes: int
    tick: int
    phase: str
    owner: str
    op: str


@dataclass(frozen=True)
class Timeline:
    """Blocks as columns (one row a block), calls, phase marks, and what else the trace found out (``about``).

    ``shapes[shape[i]]`` is the shape of the tensor that block ``i`` was made for (of a workspace: of what its kernel
    reads), or None where nobody knows it.
    ``work`` and ``modules`` say what the steady step does; a Timeline from a file has neither.
    """

    born: Ints
    died: Ints
    bytes: Ints
    kind: Ints
    phase: Ints
    owner: Ints
    op: Ints
    owners: tuple[str, ...]
    ops: tuple[str, ...]
    calls: Calls
    mark_tick: Ints
    mark_phase: Ints
    ticks: int
    about: About = field(default_factory=About)
    work: Work = field(default_factory=Work)
    modules: tuple[ModuleCall, ...] = ()
    shape: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    shapes: tuple[Shape | None, ...] = (None,)

    def __post_init__(self) -> None:
        if len(self.shape) != len(self.born):  # shapes are told to people alone: who has none to give need not say so
            object.__setattr__(self, "shape", np.zeros(len(self.born), dtype=np.int64))
            object.__setattr__(self, "shapes", (None,))

    def __len__(self) -> int:
        return len(self.born)

    def curve(self) -> Ints:
        """Live bytes after each tick."""
        change = np.zeros(self.ticks + 1, dtype=np.int64)
        np.add.at(change, self.born, self.bytes)
        np.subtract.at(change, self.died, self.bytes)
        live: Ints = np.cumsum(change)[: self.ticks]
        return live

    def peak(self) -> Peak:
        if not self.bytes.any():
            return Peak(0, 0, PHASES[0], "", "")
        curve = self.curve()
        tick = int(np.argmax(curve))
        row = int(np.argmax(np.where(self.born <= tick, self.born, -1)))
        return Peak(int(curve[tick]), tick, self.phase_at(tick), self.owners[self.owner[row]], self.ops[self.op[row]])

    def phase_at(self, tick: int) -> str:
        at = int(np.searchsorted(self.mark_tick, tick, side="right")) - 1
        return PHASES[int(self.mark_phase[at])] if at >= 0 else PHASES[0]

    def live(self, tick: int) -> NDArray[np.bool_]:
        """Which blocks are alive at ``tick``."""
        return (self.born <= tick) & (tick < self.died)

    def by_kind(self, tick: int) -> dict[str, int]:
        """Bytes alive at ``tick``, kind by kind (every kind is listed)."""
        sums = self._sum_by(self.kind, tick, len(KINDS))
        return {kind: int(sums[i]) for i, kind in enumerate(KINDS)}

    def by_owner(self, tick: int) -> dict[str, int]:
        """Bytes alive at ``tick`` by owner, largest first."""
        sums = self._sum_by(self.owner, tick, len(self.owners))
        order = np.argsort(-sums, kind="stable")
        return {self.owners[i]: int(sums[i]) for i in order if sums[i]}

    def by_phase(self) -> dict[str, int]:
        """The most that is live in each phase the step goes through."""
        curve, peaks = self.curve(), dict[str, int]()
        starts = [*self.mark_tick.tolist(), self.ticks]
        for start, end, phase in zip(starts[:-1], starts[1:], self.mark_phase.tolist(), strict=True):
            if end > start:
                peaks[PHASES[phase]] = max(peaks.get(PHASES[phase], 0), int(curve[start:end].max()))
        return peaks

    def _sum_by(self, column: Ints, tick: int, size: int) -> Ints:
        live = self.live(tick)
        sums = np.zeros(size, dtype=np.int64)
        np.add.at(sums, column[live], self.bytes[live])
        return sums

    def round_up(self, granule: int) -> Timeline:
        """The same history in an allocator that hands out multiples of ``granule`` bytes (empty blocks take none)."""
        return replace(self, bytes=-(-self.bytes // granule) * granule)

    def with_scratch(self, scratch: Ints) -> Timeline:
        """The history in which call ``i`` holds ``scratch[i]`` bytes of workspace while it runs."""
        if len(scratch) != len(self.calls):
            raise ValueError(f"expected {len(self.calls)} scratch sizes, one a call; got {len(scratch)}")
        used = np.flatnonzero(scratch)
        calls, specs = self.calls, [json.loads(spec) for spec in self.calls.specs]

        def join_column(column: Ints, more: Ints) -> Ints:
            return np.concatenate([column, np.asarray(more, dtype=np.int64)])

        return replace(
            self,
            born=join_column(self.born, calls.tick[used]),
            died=join_column(self.died, calls.tick[used] + 1),
            bytes=join_column(self.bytes, scratch[used]),
            kind=join_column(self.kind, np.full(len(used), KINDS.index("workspace"))),
            phase=join_column(self.phase, calls.phase[used]),
            owner=join_column(self.owner, calls.owner[used]),
            op=join_column(self.op, calls.spec[used] + len(self.ops)),
            ops=(*self.ops, *(spec["op"] for spec in specs)),
            shape=join_column(self.shape, calls.spec[used] + len(self.shapes)),
            shapes=(*self.shapes, *map(_read_shape, specs)),
        )


class Builder:
    """Writes a Timeline event by event."""

    def __init__(self) -> None:
        self.ticks = 0
        self.phase = PHASES[0]
        self.kinds: list[int] = []
        self._born: list[int] = []
        self._died: list[int] = []
        self._bytes: list[int] = []
        self._phase: list[int] = []
        self._owner: list[int] = []
        self._op: list[int] = []
        self._shape: list[int] = []
        self._shapes: dict[Shape | None, int] = {None: 0}
        self._names: dict[str, dict[str, int]] = {"owner": {}, "op": {}, "spec": {}}
        self._calls: list[tuple[int, int, int, int]] = []
        self._marks: list[tuple[int, int]] = [(0, 0)]

    def allocate(self, nbytes: int, *, kind: str, owner: str, op: str, shape: Shape | None = None) -> int:
        """A block is born, for a tensor of ``shape``; its number is what ``free`` and ``kinds`` want."""
        self._born.append(self.ticks)
        self._died.append(-1)
        self._bytes.append(nbytes)
        self.kinds.append(_KIND[kind])
        self._phase.append(_PHASE[self.phase])
        self._owner.append(self._number("owner", owner))
        self._op.append(self._number("op", op))
        self._shape.append(self._shapes.setdefault(shape, len(self._shapes)))
        self.ticks += 1
        return len(self._born) - 1

    def free(self, block: int) -> None:
        if self._died[block] < 0:
            self._died[block] = self.ticks
            self.ticks += 1

    def call(self, *, owner: str, spec: Mapping[str, Any]) -> None:
        """An operation ran whose kernel may have taken scratch memory."""
        number = self._number("spec", json.dumps(spec, sort_keys=True, separators=(",", ":")))
        self._calls.append((self.ticks, self._number("owner", owner), PHASES.index(self.phase), number))
        self.ticks += 2

    def enter(self, phase: str) -> None:
        if phase != self.phase:
            self.phase = phase
            self._marks.append((self.ticks, PHASES.index(phase)))

    def set_owner(self, block: int, owner: str) -> None:
        self._owner[block] = self._number("owner", owner)

    def resize(self, block: int, nbytes: int) -> None:
        self._bytes[block] = nbytes

    def size(self, block: int) -> int:
        return self._bytes[block]

    def lifetime(self, block: int) -> tuple[int, int]:
        """(born, died) of a block; died is -1 while it lives."""
        return self._born[block], self._died[block]

    def __len__(self) -> int:
        return len(self._born)

    def build(self, about: About | None = None) -> Timeline:
        died = np.array(self._died, dtype=np.int64)
        calls = np.array(self._calls, dtype=np.int64).reshape(-1, 4)
        marks = np.array(self._marks, dtype=np.int64)
        return Timeline(
            born=_column(self._born),
            died=np.where(died < 0, self.ticks, died),
            bytes=_column(self._bytes),
            kind=_column(self.kinds),
            phase=_column(self._phase),
            owner=_column(self._owner),
            op=_column(self._op),
            owners=tuple(self._names["owner"]),
            ops=tuple(self._names["op"]),
            calls=Calls(calls[:, 0], calls[:, 1], calls[:, 2], calls[:, 3], tuple(self._names["spec"])),
            mark_tick=marks[:, 0],
            mark_phase=marks[:, 1],
            ticks=self.ticks,
            about=about or About(),
            shape=_column(self._shape),
            shapes=tuple(None if each is None else tuple(each) for each in self._shapes),
        )

    def _number(self, table: str, name: str) -> int:
        names = self._names[table]
        return names.setdefault(name, len(names))


def _read_shape(spec: Mapping[str, Any]) -> Shape | None:
    """What the kernel of a call reads, where its price depends on the shape and not on a count alone."""
    sides = spec.get("x")
    return tuple(sides) if isinstance(sides, list) and all(type(side) is int for side in sides) else None


def _column(values: Sequence[int]) -> Ints:
    return np.array(values, dtype=np.int64)
