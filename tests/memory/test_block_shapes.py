"""A block keeps its shape through everything that is done to a Timeline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from oomproof.memory.after_training import follow
from oomproof.memory.cards.devices import find_device
from oomproof.memory.first_step import with_first_step
from oomproof.memory.lasting import with_lasting
from oomproof.memory.parallel import Parallel, with_exchange
from oomproof.memory.runtime import Runtime
from oomproof.memory.timeline import Builder, Timeline
from oomproof.plan.estimates import what_if


def traced(last: str = "optimizer") -> Timeline:
    """A step in which every block is made for a tensor with as many numbers as it has bytes."""
    step = Builder()
    step.allocate(1 << 20, kind="parameter", owner="net", op="parameter", shape=(1 << 20,))
    primed = step.allocate(2 << 20, kind="optimizer", owner="net", op="zeros_like", shape=(2 << 20,))
    step.enter("forward")
    step.call(owner="net", spec={"op": "conv2d"})
    kept = step.allocate(5 << 20, kind="activation", owner="net", op="conv2d", shape=(5 << 20,))
    step.enter("backward")
    step.allocate(3 << 20, kind="gradient", owner="net", op="mm", shape=(3 << 20,))
    step.free(kept)
    step.enter(last)
    step.allocate(7 << 20, kind="temporary", owner="net", op="sqrt", shape=(7 << 20,))
    assert primed == 1
    return step.build()


CHANGES: dict[str, Callable[[Timeline], Timeline]] = {
    "scratch": lambda step: step.with_scratch(np.array([9])),
    "the first step": lambda step: with_first_step(step, 1),
    "what lasts": lambda step: with_lasting(step, find_device("T4"), Runtime(ddp=True)),
    "TensorFlow's exchange": lambda step: with_exchange(step, Parallel(exchange="packs")),
    "validation after it": lambda step: follow(step, traced("validation")),
    "a plan's blocks": lambda step: what_if._with_blocks(step, 99, (0, 3)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_block_keeps_its_shape(change: str) -> None:
    before = traced()
    after = CHANGES[change](before)
    known = [row for row in range(len(after)) if after.shapes[after.shape[row]]]
    assert len(known) >= len(before)
    assert len(after) > len(before), "the change had something to do"
    assert all(after.shapes[after.shape[row]] == (after.bytes[row],) for row in known)


def test_who_changes_rows_and_says_nothing_of_shapes_loses_them() -> None:
    step = traced()
    columns = {name: getattr(step, name)[1:] for name in ("born", "died", "bytes", "kind", "phase", "owner", "op")}
    shorter = replace(step, **columns)
    assert (shorter.shape.tolist(), shorter.shapes) == ([0] * (len(step) - 1), (None,))
