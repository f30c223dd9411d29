"""One call at a time takes all it may: what the allocator keeps then."""

from __future__ import annotations

import numpy as np
import pytest

from oomproof.memory import thirsty_calls
from oomproof.memory.allocators import cuda
from oomproof.memory.allocators.replaying import Replay
from oomproof.memory.scratch.recurrent import FORWARD
from oomproof.memory.thirsty_calls import most_reserved
from oomproof.memory.timeline import Builder, Ints, Timeline

MIB = 1 << 20


def replay(timeline: Timeline, capacity: int | None) -> Replay:
    return cuda.replay(timeline, cuda.CudaRules(), capacity)


def step_of(*layers: int) -> Timeline:
    """A forward pass: each layer's kernel runs, then its result stays. ``layers`` are MiB."""
    step = Builder()
    for place, size in enumerate(layers):
        step.call(owner=f"layer{place}", spec={"op": "sort", "elements": size})
        step.allocate(size * MIB, kind="activation", owner=f"layer{place}", op="conv")
    return step.build()


def scratch(*sizes: int) -> Ints:
    return np.array(sizes, dtype=np.int64) * MIB


def test_the_block_of_a_workspace_serves_the_next() -> None:
    step = step_of(100, 101, 102)
    none, all_thirsty = scratch(0, 0, 0), scratch(400, 400, 400)
    reserved = most_reserved(step, (none, none, all_thirsty), replay)
    assert reserved >= replay(step.with_scratch(none), None).reserved + 200 * MIB
    assert reserved <= (100 + 101 + 102 + 400 + 3 * 20) * MIB, "one workspace, not three"


def test_whichever_call_is_thirsty_is_covered() -> None:
    step = step_of(30, 200, 31, 170)
    usual, none, most = scratch(10, 10, 10, 10), scratch(0, 0, 0, 0), scratch(250, 120, 300, 40)
    reserved = most_reserved(step, (usual, none, most), replay)
    for place in range(4):
        for others in (usual, none):
            thirsty = np.where(np.arange(4) == place, most, others)
            assert reserved >= replay(step.with_scratch(thirsty), None).reserved
    assert reserved > replay(step.with_scratch(usual), None).reserved


def test_what_drowns_in_the_margin_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def counting(timeline: Timeline, capacity: int | None) -> Replay:
        tried.append(timeline)
        return replay(timeline, capacity)

    monkeypatch.setattr(thirsty_calls, "most_by_smaller", lambda history, again: 0)
    step = step_of(1000, 1001)
    most_reserved(step, (scratch(1, 1), scratch(0, 0), scratch(15, 15)), counting)
    assert len(tried) == 2, "as expected, and without workspaces"
    most_reserved(step, (scratch(1, 1), scratch(0, 0), scratch(15, 150)), counting)
    assert len(tried) == 2 + 4, "and the thirsty one among both"
    most_reserved(step, (scratch(0, 0), scratch(0, 0), scratch(15, 150)), counting)
    assert len(tried) == 6 + 2, "none is expected: the same history twice"


def test_what_recurrent_layers_keep_is_as_large_as_it_can_be() -> None:
    step = Builder()
    step.allocate(400 * MIB, kind="activation", owner="rnn", op=FORWARD)
    nothing = scratch()
    assert most_reserved(step.build(), (nothing, nothing, nothing), replay) == 600 * MIB
