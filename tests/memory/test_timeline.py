"""The Timeline itself: its sums against a loop that cannot be wrong."""

from __future__ import annotations

import doctest
import json

import numpy as np
import pytest
from histories import timelines
from hypothesis import given, settings
from hypothesis import strategies as st

from oomproof.memory import timeline as module
from oomproof.memory.timeline import KINDS, PHASES, Builder, Timeline

several = settings(max_examples=100, deadline=None)


def naive_curve(timeline: Timeline) -> list[int]:
    rows = list(zip(timeline.born.tolist(), timeline.died.tolist(), timeline.bytes.tolist(), strict=True))
    return [sum(size for born, died, size in rows if born <= tick < died) for tick in range(timeline.ticks)]


@several
@given(timelines())
def test_curve(timeline: Timeline) -> None:
    assert timeline.curve().tolist() == naive_curve(timeline)


@several
@given(timelines())
def test_the_peak_is_the_first_fullest_moment(timeline: Timeline) -> None:
    peak, curve = timeline.peak(), naive_curve(timeline)
    if not timeline.bytes.any():
        assert peak.bytes == 0
        return
    assert (peak.bytes, peak.tick) == (max(curve), curve.index(max(curve)))
    assert peak.phase in PHASES
    latest = max((int(born), row) for row, born in enumerate(timeline.born) if born <= peak.tick)[1]
    assert (peak.owner, peak.op) == (
        timeline.owners[timeline.owner[latest]],
        timeline.ops[timeline.op[latest]],
    )


@several
@given(timelines())
def test_shares_add_up_at_every_tick(timeline: Timeline) -> None:
    for tick, live in enumerate(naive_curve(timeline)):
        kinds = timeline.by_kind(tick)
        assert tuple(kinds) == KINDS
        assert sum(kinds.values()) == live
        owners = timeline.by_owner(tick)
        assert sum(owners.values()) == live
        assert list(owners.values()) == sorted(owners.values(), reverse=True)
        assert int(timeline.live(tick).sum()) >= len(owners)


@several
@given(timelines())
def test_phases(timeline: Timeline) -> None:
    expected: dict[str, int] = {}
    for tick, live in enumerate(naive_curve(timeline)):
        phase = timeline.phase_at(tick)
        expected[phase] = max(expected.get(phase, 0), live)
    assert timeline.by_phase() == expected
    for row, born in enumerate(timeline.born.tolist()):
        assert timeline.phase_at(born) == PHASES[timeline.phase[row]]


@several
@given(timelines(), st.sampled_from((1, 64, 512)))
def test_rounded(timeline: Timeline, granule: int) -> None:
    rounded = timeline.round_up(granule)
    for before, after in zip(timeline.bytes.tolist(), rounded.bytes.tolist(), strict=True):
        assert after % granule == 0
        assert before <= after < before + granule
    assert rounded.round_up(granule).bytes.tolist() == rounded.bytes.tolist()


@several
@given(timelines(), st.data())
def test_scratch_lives_while_its_call_runs(timeline: Timeline, data: st.DataObject) -> None:
    calls = timeline.calls
    sizes = data.draw(st.lists(st.sampled_from((0, 1, 1000)), min_size=len(calls), max_size=len(calls)))
    with_scratch = timeline.with_scratch(np.array(sizes, dtype=np.int64))
    expected = naive_curve(timeline)
    for tick, size in zip(calls.tick.tolist(), sizes, strict=True):
        expected[tick] += size
    assert with_scratch.curve().tolist() == expected
    assert len(with_scratch) == len(timeline) + sum(size > 0 for size in sizes)
    for row in range(len(timeline), len(with_scratch)):
        call = calls.tick.tolist().index(int(with_scratch.born[row]))
        assert KINDS[with_scratch.kind[row]] == "workspace"
        assert with_scratch.ops[with_scratch.op[row]] == json.loads(calls.specs[calls.spec[call]])["op"]
        assert with_scratch.owner[row] == calls.owner[call]
        assert with_scratch.phase[row] == calls.phase[call]


def test_scratch_for_another_number_of_calls() -> None:
    with pytest.raises(ValueError, match="expected 0 scratch sizes, one a call; got 1"):
        Builder().build().with_scratch(np.array([5]))


@several
@given(timelines())
def test_every_event_has_a_tick_of_its_own(timeline: Timeline) -> None:
    ticks = [*timeline.born.tolist(), *timeline.died[timeline.died < timeline.ticks].tolist()]
    for tick in timeline.calls.tick.tolist():
        ticks += [tick, tick + 1]
    assert sorted(ticks) == list(range(timeline.ticks))
    assert np.all(timeline.born < timeline.died)


def test_a_block_is_freed_once() -> None:
    step = Builder()
    block = step.allocate(5, kind="input", owner="", op="")
    step.free(block)
    step.free(block)
    assert step.lifetime(block) == (0, 1)
    assert step.ticks == 2


def test_kinds_and_owners_may_be_learned_later() -> None:
    step = Builder()
    block = step.allocate(5, kind="temporary", owner="?", op="conv")
    step.kinds[block] = KINDS.index("gradient")
    step.set_owner(block, "backbone")
    timeline = step.build()
    assert timeline.by_kind(0)["gradient"] == 5
    assert timeline.by_owner(0) == {"backbone": 5}


def test_an_empty_history() -> None:
    timeline = Builder().build()
    assert (len(timeline), timeline.ticks, timeline.peak().bytes) == (0, 0, 0)
    assert timeline.curve().tolist() == []
    assert timeline.by_phase() == {}


def test_docstring() -> None:
    assert doctest.testmod(module).failed == 0
