"""Puts the first step in front of a steady one.

A tracer that lays out gradients and optimizer state by itself ("priming") records one steady step. What the allocator
has seen before it matters for reserved memory: a first step without optimizer state, the state born at its end, its
gradients alive until the second step drops them. All of that follows from the steady step and is written here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from oomproof.memory.activity import ModuleCall
from oomproof.memory.timeline import KINDS, PHASES, Calls, Ints, Timeline

_GRADIENT, _OPTIMIZER = KINDS.index("gradient"), KINDS.index("optimizer")
Bools = NDArray[np.bool_]
_NEVER = np.iinfo(np.int64).max


def with_first_step(steady: Timeline, primed_at: int) -> Timeline:
    """``steady``: setup, from tick ``primed_at`` on the priming, then one step. Returns setup and two steps."""
    start = _first_mark(steady, 0, PHASES[1:])
    length = steady.ticks - start
    first, second = 2 * primed_at, 2 * (primed_at + length) + 2

    def in_step(ticks: Ints, base: int) -> Ints:
        return base + 2 * (ticks - start)

    kind, born, died = steady.kind, steady.born, steady.died
    lives_on = died >= steady.ticks
    setup, stepping = born < primed_at, born >= start
    primed = ~setup & ~stepping & (died >= start)
    dropped_gradients = primed & (kind == _GRADIENT) & ~lives_on
    state = primed & ~dropped_gradients

    backward = _first_mark(steady, start, ("backward",))
    update = _first_mark(steady, start, ("optimizer",))
    old_gradients_die = (
        in_step(died[dropped_gradients].min(keepdims=True), second)[0] if dropped_gradients.any() else second - 1
    )

    setup_died = np.where(died < start, np.minimum(2 * died, first), in_step(died, second))
    state_born = np.where(
        kind[state] == _OPTIMIZER, in_step(np.array(update), first), in_step(np.array(backward), first)
    )
    leftover_dies = np.where(kind == _GRADIENT, old_gradients_die, second - 1)
    first_died = np.where(lives_on, leftover_dies, in_step(died, first))

    def endless(keys: Ints, rows: Ints | np.ndarray) -> Ints:
        return np.where(lives_on[rows], _NEVER, keys[rows])

    rows = np.concatenate([np.flatnonzero(part) for part in (setup, state, stepping, stepping)])
    birth = np.concatenate(
        [2 * born[setup], state_born, in_step(born[stepping], first), in_step(born[stepping], second)]
    )
    death = np.concatenate(
        [
            endless(setup_died, setup),
            endless(in_step(died, second), state),
            first_died[stepping],
            endless(in_step(died, second), stepping),
        ]
    )
    call_rows, call_keys = _twice(steady.calls, start, first, second)
    ends = death != _NEVER
    keys = np.concatenate([death[ends], birth, call_keys, call_keys + 2])
    order = np.argsort(keys, kind="stable")
    tick = np.empty(len(keys), dtype=np.int64)
    tick[order] = np.arange(len(keys))
    parts = np.split(tick, np.cumsum([int(ends.sum()), len(birth), len(call_keys)]))
    new_died = np.full(len(birth), len(keys), dtype=np.int64)
    new_died[ends] = parts[0]

    def new_tick(ticks: Ints) -> Ints:
        """Ticks of the steady step as they are in the second one."""
        return np.searchsorted(keys[order], in_step(ticks, second)).astype(np.int64)

    inner = steady.mark_tick >= start
    mark_keys = np.concatenate([[0], in_step(steady.mark_tick[inner], first), in_step(steady.mark_tick[inner], second)])
    return replace(
        steady,
        born=parts[1],
        died=new_died,
        bytes=steady.bytes[rows],
        kind=kind[rows],
        phase=steady.phase[rows],
        owner=steady.owner[rows],
        op=steady.op[rows],
        shape=steady.shape[rows],
        calls=Calls(
            parts[2],
            steady.calls.owner[call_rows],
            steady.calls.phase[call_rows],
            steady.calls.spec[call_rows],
            steady.calls.specs,
        ),
        mark_tick=np.searchsorted(keys[order], mark_keys).astype(np.int64),
        mark_phase=np.concatenate([[0], steady.mark_phase[inner], steady.mark_phase[inner]]).astype(np.int64),
        ticks=len(keys),
        work=replace(steady.work, tick=new_tick(steady.work.tick)),
        modules=_repeat_calls(steady, (setup, state, stepping), new_tick),
    )


def _repeat_calls(
    steady: Timeline, parts: tuple[Bools, Bools, Bools], new_tick: Callable[[Ints], Ints]
) -> tuple[ModuleCall, ...]:
    """The steady step's module calls, with ticks and rows of the second step."""
    setup, state, stepping = parts
    row = np.full(len(steady), -1, dtype=np.int64)
    row[setup] = np.arange(setup.sum())
    row[state] = setup.sum() + np.arange(state.sum())
    row[stepping] = setup.sum() + state.sum() + stepping.sum() + np.arange(stepping.sum())

    def rows(old: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(int(row[each]) for each in old if row[each] >= 0)

    ticks = new_tick(np.array([[call.enter, call.leave] for call in steady.modules], dtype=np.int64).reshape(-1, 2))
    return tuple(
        replace(call, enter=int(enter), leave=int(leave), inputs=rows(call.inputs), outputs=rows(call.outputs))
        for call, (enter, leave) in zip(steady.modules, ticks, strict=True)
    )


def _first_mark(timeline: Timeline, after: int, wanted: tuple[str, ...]) -> int:
    """The tick at which the first wanted phase begins; the end where there is none."""
    for tick, phase in zip(timeline.mark_tick.tolist(), timeline.mark_phase.tolist(), strict=True):
        if tick >= after and PHASES[phase] in wanted:
            return int(tick)
    return timeline.ticks


def _twice(calls: Calls, start: int, first: int, second: int) -> tuple[Ints, Ints]:
    """Calls of the step, once in each step (calls of the setup are left out): their rows and keys."""
    rows = np.flatnonzero(calls.tick >= start)
    offset = 2 * (calls.tick[rows] - start)
    return np.concatenate([rows, rows]), np.concatenate([first + offset, second + offset])
