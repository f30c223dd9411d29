"""A step whose temporaries a compiler has laid out in one block."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oomproof.memory.about import About
from oomproof.memory.allocators import bfc
from oomproof.memory.arena import lay_out_arena
from oomproof.memory.cards import jax_limits
from oomproof.memory.cards.devices import find_device
from oomproof.memory.make_forecast import build_forecast
from oomproof.memory.runtime import Runtime
from oomproof.memory.timeline import Builder, Timeline

MIB = 1 << 20


def two_steps() -> Timeline:
    """100 MiB of weights, 10 of input, and an arena of 64: 24 and 30 at its fullest moment, 10 between them."""
    step = Builder()
    step.allocate(100 * MIB, kind="parameter", owner="fc", op="variable")
    for _ in range(2):
        step.enter("forward")
        batch = step.allocate(10 * MIB, kind="input", owner="x", op="input")
        gaps = step.allocate(10 * MIB, kind="temporary", owner="(XLA's arena)", op="between buffers")
        kept = step.allocate(24 * MIB, kind="activation", owner="conv", op="fusion")
        early = step.allocate(8 * MIB, kind="temporary", owner="conv", op="fusion")
        step.free(early)
        step.enter("backward")
        late = step.allocate(30 * MIB, kind="gradient", owner="conv", op="fusion")
        for block in (late, kept, gaps, batch):
            step.free(block)
    return step.build(About(arena=64 * MIB, allocator="bfc"))


def test_the_allocator_sees_one_block_a_step() -> None:
    steps = two_steps()
    seen = lay_out_arena(steps)
    assert sorted(size // MIB for size in seen.bytes.tolist() if size) == [10, 10, 64, 64, 100]
    assert seen.peak().bytes == steps.peak().bytes == 174 * MIB
    assert len(seen) == len(steps)


def test_the_arena_needs_room_in_one_piece() -> None:
    assert bfc.replay_at_once(lay_out_arena(two_steps())).reserved >= 174 * MIB
    assert bfc.replay_at_once(lay_out_arena(two_steps()), 170 * MIB).failed is not None


def test_workspaces_are_inside_the_arena() -> None:
    step = Builder()
    block = step.allocate(8 * MIB, kind="temporary", owner="conv", op="fusion")
    step.call(owner="conv", spec={"op": "nms", "elements": 1})
    step.free(block)
    timeline = step.build(About(arena=8 * MIB))
    seen = lay_out_arena(timeline.with_scratch(timeline.calls.spec * 0 + 4 * MIB))
    assert [size // MIB for size in seen.bytes.tolist() if size] == [12]


def test_other_timelines_stay_as_they_are() -> None:
    steps = two_steps()
    plain = replace(steps, about=About())
    assert lay_out_arena(plain) is plain


def test_a_shortage_names_the_whole_arena() -> None:
    steps = replace(two_steps(), bytes=two_steps().bytes * 64)
    short = build_forecast(steps, find_device("RTX 3060"), Runtime(), "job", {})
    assert short.shortage is not None
    assert short.shortage.requested == 64 * 64 * MIB


@pytest.mark.parametrize("growth", [False, True])
def test_jax_holds_three_quarters_of_a_card(growth: bool) -> None:
    card = find_device("RTX 3090")
    runtime = Runtime(memory_growth=growth)
    assert jax_limits.limit(card, runtime, 300 * MIB) == int(0.75 * card.total)
    assert "75%" in jax_limits.notes(card, runtime, 300 * MIB)[0]
    assert jax_limits.limit(card, Runtime(memory_limit_mb=512), 300 * MIB) == 512 * MIB
    busy = replace(card, held=card.total // 2)
    assert jax_limits.limit(busy, runtime, 300 * MIB) == busy.budget - 300 * MIB


def test_a_step_on_jax_has_less_room_than_one_on_tensorflow() -> None:
    # 10.2 GiB: TensorFlow leaves 21.4 of 23.6 GiB to its allocator, JAX 17.7.
    steps = replace(two_steps(), bytes=two_steps().bytes * 110)
    card = find_device("RTX 3090")
    on_jax = replace(steps, about=replace(steps.about, limits="jax"))
    assert build_forecast(steps, card, Runtime(), "job", {}).shortage is None
    assert build_forecast(on_jax, card, Runtime(), "job", {}).shortage is not None
