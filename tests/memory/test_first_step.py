"""The first step in front of a steady one, on histories written by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from oomproof.memory.about import About
from oomproof.memory.activity import ModuleCall, Work
from oomproof.memory.first_step import with_first_step
from oomproof.memory.timeline import KINDS, PHASES, Builder, Timeline

WEIGHT, INPUT, STATE, ACTIVATION, SCRATCH = 100, 10, 200, 40, 7
SPEC = {"op": "convolution"}


def steady(drop: str, *, state: bool = True, scratch: bool = True) -> tuple[Timeline, int]:
    """Setup, priming and one step of one weight; ``drop``: when its old gradient goes, or ``keep``."""
    step = Builder()
    step.allocate(WEIGHT, kind="parameter", owner="fc", op="parameter")
    gone = step.allocate(1000, kind="temporary", owner="fc", op="init")
    step.free(gone)
    step.allocate(INPUT, kind="input", owner="(step)", op="rand")
    step.call(owner="fc", spec={"op": "in setup"})
    late = step.allocate(1, kind="temporary", owner="fc", op="garbage")
    primed_at = step.ticks
    old = step.allocate(WEIGHT, kind="gradient", owner="fc", op="empty_like")
    passing = step.allocate(5000, kind="temporary", owner="fc", op="made while priming")
    if state:
        step.allocate(STATE, kind="optimizer", owner="fc", op="zeros_like")
    step.free(passing)
    step.free(late)  # collected while priming: gone before the first step
    step.enter("forward")
    if drop == "before_forward":
        step.free(old)
    kept = step.allocate(ACTIVATION, kind="activation", owner="fc", op="addmm")
    step.call(owner="fc", spec=SPEC)
    if drop == "before_backward":
        step.free(old)
    step.enter("backward")
    step.call(owner="fc", spec=SPEC)
    if drop != "keep":
        step.allocate(WEIGHT, kind="gradient", owner="fc", op="mm")
    step.free(kept)
    step.enter("optimizer")
    if scratch:
        buffer = step.allocate(SCRATCH, kind="temporary", owner="(step)", op="sqrt")
        step.free(buffer)
    return step.build(About(job="by hand")), primed_at


DROPS = ("before_forward", "before_backward", "keep")


def two_steps(drop: str, **what: bool) -> Timeline:
    return with_first_step(*steady(drop, **what))


def rows(timeline: Timeline, kind: str) -> list[tuple[int, int]]:
    """(born, died) of every block of a kind, in order of birth."""
    chosen = np.flatnonzero(timeline.kind == KINDS.index(kind))
    return sorted((int(timeline.born[row]), int(timeline.died[row])) for row in chosen)


def starts(timeline: Timeline, phase: str) -> list[int]:
    return timeline.mark_tick[timeline.mark_phase == PHASES.index(phase)].tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("drop", DROPS)
def test_every_event_has_a_tick_of_its_own(drop: str) -> None:
    timeline = two_steps(drop)
    ended = timeline.died[timeline.died < timeline.ticks]
    ticks = np.concatenate([timeline.born, ended, timeline.calls.tick, timeline.calls.tick + 1])
    assert sorted(ticks.tolist()) == list(range(timeline.ticks))
    assert (timeline.born < timeline.died).all()


@pytest.mark.parametrize("drop", DROPS)
def test_calls_are_made_in_both_steps_and_not_in_setup(drop: str) -> None:
    timeline = two_steps(drop)
    assert [timeline.calls.specs[spec] for spec in timeline.calls.spec] == ['{"op":"convolution"}'] * 4
    assert [timeline.phase_at(tick) for tick in timeline.calls.tick.tolist()] == ["forward", "backward"] * 2
    assert (
        timeline.with_scratch(np.full(4, 10_000)).peak().bytes == timeline.curve()[timeline.calls.tick].max() + 10_000
    )


@pytest.mark.parametrize("drop", DROPS)
def test_phases_go_through_twice(drop: str) -> None:
    timeline = two_steps(drop)
    assert [PHASES[phase] for phase in timeline.mark_phase] == ["setup", *["forward", "backward", "optimizer"] * 2]
    assert (np.diff(timeline.mark_tick) >= 0).all()


@pytest.mark.parametrize("drop", DROPS)
def test_state_is_born_at_the_end_of_the_first_step(drop: str) -> None:
    timeline = two_steps(drop)
    [(born, died)] = rows(timeline, "optimizer")
    first, second = starts(timeline, "optimizer")[0], starts(timeline, "forward")[1]
    assert first <= born < second and died == timeline.ticks
    assert timeline.phase_at(born) == "optimizer"


@pytest.mark.parametrize(("drop", "phase"), [("before_forward", "forward"), ("before_backward", "forward")])
def test_old_gradients_live_until_they_are_dropped(drop: str, phase: str) -> None:
    timeline = two_steps(drop)
    (first_born, first_died), (second_born, second_died) = rows(timeline, "gradient")
    assert timeline.phase_at(first_born) == timeline.phase_at(second_born) == "backward"
    assert timeline.phase_at(first_died) == phase and second_died == timeline.ticks
    assert first_died < second_born
    activation = rows(timeline, "activation")[1][0]
    assert (first_died > activation) == (drop == "before_backward")  # is it there beside the second step's activations?


def test_kept_gradients_are_born_once() -> None:
    timeline = two_steps("keep")
    [(born, died)] = rows(timeline, "gradient")
    assert starts(timeline, "backward")[0] <= born < starts(timeline, "optimizer")[0]
    assert died == timeline.ticks


@pytest.mark.parametrize("drop", DROPS)
def test_levels(drop: str) -> None:
    timeline = two_steps(drop)
    curve, held = timeline.curve(), WEIGHT + INPUT
    first, second = starts(timeline, "forward")
    assert curve[first] == held
    assert curve[:first].max() == held + 1000 - INPUT  # what setup passed through stays, what priming did is gone
    assert curve[second:].max() == held + STATE + ACTIVATION + WEIGHT
    assert curve[-1] == held + STATE + WEIGHT
    in_first_forward = curve[first : starts(timeline, "backward")[0]].max()
    assert in_first_forward == held + ACTIVATION  # neither gradients nor state yet


def test_setups_garbage_is_gone_when_the_first_step_starts() -> None:
    timeline = two_steps("before_forward")
    [row] = np.flatnonzero(timeline.op == timeline.ops.index("garbage"))
    assert timeline.died[row] <= starts(timeline, "forward")[0]


def test_activations_are_there_in_both_steps() -> None:
    timeline = two_steps("before_forward")
    assert [timeline.phase_at(born) for born, _ in rows(timeline, "activation")] == ["forward"] * 2
    assert [timeline.phase_at(died) for _, died in rows(timeline, "activation")] == ["backward"] * 2


def test_names_and_story_stay() -> None:
    whole, primed_at = steady("before_forward")
    timeline = with_first_step(whole, primed_at)
    assert (timeline.owners, timeline.ops, timeline.about) == (whole.owners, whole.ops, whole.about)
    assert "made while priming" not in {timeline.ops[op] for op in timeline.op}


@pytest.mark.parametrize("scratch", [True, False])
def test_an_optimizer_without_state(scratch: bool) -> None:
    timeline = two_steps("before_forward", state=False, scratch=scratch)
    assert rows(timeline, "optimizer") == []
    assert timeline.curve()[-1] == WEIGHT + INPUT + WEIGHT


def test_what_a_step_leaves_behind_is_replaced_in_the_next() -> None:
    step = Builder()
    step.allocate(WEIGHT, kind="parameter", owner="fc", op="parameter")
    primed_at = step.ticks
    step.enter("forward")
    step.allocate(ACTIVATION, kind="activation", owner="fc", op="kept in a list")
    timeline = with_first_step(step.build(), primed_at)
    (_, first_died), (second_born, second_died) = rows(timeline, "activation")
    assert first_died < second_born and second_died == timeline.ticks


def worked(step: Timeline) -> Timeline:
    """The steady step with work and a module call noted as a tracer would: ticks are those of its own events."""
    [kept] = np.flatnonzero(step.kind == KINDS.index("activation"))
    [batch] = np.flatnonzero(step.kind == KINDS.index("input"))
    passing = int(np.flatnonzero(step.op == step.ops.index("made while priming"))[0])
    begins, ends = int(step.born[kept]), int(step.died[kept])
    ticks = np.array([begins + 1, ends, step.ticks])
    columns = (
        np.zeros(3, dtype=np.int64),
        np.array([1, 2, 3]),
        np.full(3, 9),
        np.full(3, 8),
        np.zeros(3, dtype=np.int64),
    )
    call = ModuleCall("fc", begins, begins + 1, (int(batch), passing), (int(kept),), 4, True, True)
    return replace(step, work=Work(ticks, *columns), modules=(call,))


@pytest.mark.parametrize("drop", DROPS)
def test_what_the_step_does_is_told_of_the_second(drop: str) -> None:
    step, primed_at = steady(drop)
    timeline = with_first_step(worked(step), primed_at)
    second = starts(timeline, "forward")[1]
    assert len(timeline.work) == 3 and timeline.work.flops.tolist() == [9] * 3
    forward, backward, update = timeline.work.tick.tolist()
    assert (
        second <= forward <= starts(timeline, "backward")[1] <= backward <= starts(timeline, "optimizer")[1] <= update
    )
    assert update == timeline.ticks


@pytest.mark.parametrize("drop", DROPS)
def test_rows_of_a_call_are_the_blocks_of_the_second_step(drop: str) -> None:
    step, primed_at = steady(drop)
    timeline = with_first_step(worked(step), primed_at)
    [call] = timeline.modules
    [came_in], [went_out] = call.inputs, call.outputs  # what was gone before the step is not a block any more
    assert timeline.kind[[came_in, went_out]].tolist() == [KINDS.index("input"), KINDS.index("activation")]
    assert starts(timeline, "forward")[1] <= call.enter <= timeline.born[went_out] < call.leave
    assert timeline.born[came_in] < call.enter < timeline.died[came_in]
    assert timeline.died[went_out] > starts(timeline, "backward")[1]
