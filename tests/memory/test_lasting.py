"""What a training holds all the time: cuBLAS, DDP's buckets, the context."""

from __future__ import annotations

import numpy as np
import pytest
from histories import timelines
from hypothesis import given, settings

from oomproof.memory.about import About
from oomproof.memory.cards.device_table import ARCHITECTURES
from oomproof.memory.cards.devices import Device, find_device, list_devices
from oomproof.memory.lasting import CUBLAS, CUBLAS_HOPPER, LIBRARIES, context, with_lasting
from oomproof.memory.parallel import BUCKETS, gradient_set
from oomproof.memory.runtime import Runtime
from oomproof.memory.timeline import KINDS, Builder, Timeline

MIB = 1 << 20
AMPERE, HOPPER, SIZE = find_device("RTX 3060"), find_device("H100"), find_device("8GiB")
DDP = Runtime(ddp=True)


def step() -> Timeline:
    """Two gradients that stay, one that was dropped on the way."""
    builder = Builder()
    builder.allocate(10 * MIB, kind="parameter", owner="net", op="parameter")
    builder.enter("backward")
    dropped = builder.allocate(4 * MIB, kind="gradient", owner="net", op="mm")
    builder.free(dropped)
    builder.allocate(5 * MIB, kind="gradient", owner="net", op="mm")
    builder.call(owner="net", spec={"op": "sort", "elements": 9, "item": 4})
    builder.allocate(3, kind="gradient", owner="net", op="mm")
    return builder.build(About(job="hand-made"))


def test_cublas_in_two_threads() -> None:
    assert CUBLAS == 2 * 4096 * 1024 + 8 * 16 * 1024, "PyTorch's default :4096:2:16:8, in KiB times count"
    assert CUBLAS_HOPPER == 32 * MIB
    for device, each in ((AMPERE, CUBLAS), (HOPPER, CUBLAS_HOPPER), (SIZE, CUBLAS)):
        held = with_lasting(step(), device, Runtime())
        assert held.by_owner(0) == {LIBRARIES: each}
        assert held.by_owner(held.ticks - 1)[LIBRARIES] == 2 * each
        assert held.by_kind(held.ticks - 1)["workspace"] == 2 * each


def test_buckets_are_as_large_as_what_is_trained() -> None:
    timeline = step()
    assert gradient_set(timeline) == 5 * MIB + 3
    assert with_lasting(timeline, AMPERE, DDP).by_owner(2)[BUCKETS] == 5 * MIB + 3
    for plain in (Runtime(), Runtime(gradient_as_bucket_view=True)):
        assert BUCKETS not in with_lasting(timeline, AMPERE, plain).owners


def test_gradients_in_buckets_stay_when_they_are_dropped() -> None:
    """With gradient_as_bucket_view there is no second copy, but zero_grad frees nothing."""
    timeline = step()
    held = with_lasting(timeline, AMPERE, Runtime(ddp=True, gradient_as_bucket_view=True))
    gradients = [held.by_kind(tick)["gradient"] for tick in range(3, held.ticks)]
    assert gradients[0] == gradient_set(timeline), "before the first backward"
    assert max(gradients) == gradient_set(timeline) + 5 * MIB, "one gradient beside its place in the bucket"
    assert gradients[-1] <= gradient_set(timeline) + 3
    both = with_lasting(timeline, AMPERE, DDP)
    assert held.peak().bytes < both.peak().bytes


@settings(max_examples=60, deadline=None)
@given(timelines())
def test_the_step_itself_stays_as_it_was(timeline: Timeline) -> None:
    held = with_lasting(timeline, AMPERE, DDP)
    extra = len(held) - len(timeline)
    assert extra == 3
    lasting = 2 * CUBLAS + gradient_set(timeline)
    assert (held.curve()[extra:] == timeline.curve() + lasting).all()
    assert np.array_equal(held.bytes[extra:], timeline.bytes)
    assert np.array_equal(held.died[extra:] - held.born[extra:], timeline.died - timeline.born)
    assert [held.owners[n] for n in held.owner[extra:]] == [timeline.owners[n] for n in timeline.owner]
    assert [held.ops[n] for n in held.op[extra:]] == [timeline.ops[n] for n in timeline.op]
    assert len(held.calls) == len(timeline.calls)
    for tick in range(timeline.ticks):
        assert held.phase_at(tick + extra) == timeline.phase_at(tick)
    scratch = np.arange(1, len(timeline.calls) + 1, dtype=np.int64)
    assert (held.with_scratch(scratch).curve()[extra:] == timeline.with_scratch(scratch).curve() + lasting).all()


def test_it_is_there_from_the_very_first_block_on() -> None:
    held = with_lasting(step(), AMPERE, DDP)
    assert {held.phase_at(tick) for tick in range(4)} == {"setup"}
    assert (held.died[:3] == held.ticks).all()
    assert {KINDS[kind] for kind in held.kind[:3]} == {"workspace", "gradient"}


@pytest.mark.parametrize("architecture", sorted(set(ARCHITECTURES.values())))
def test_every_architecture_has_a_context(architecture: str) -> None:
    found, unknown = context(Device("some", 8 << 30, architecture)), context(Device("some", 8 << 30))
    assert 50 * MIB < found.low < found.expected < found.high < 2048 * MIB
    assert 50 * MIB < unknown.low < unknown.expected < unknown.high < 2048 * MIB


def test_contexts_differ_by_architecture() -> None:
    assert context(find_device("GTX 1080 Ti")).expected < context(AMPERE).expected < context(HOPPER).expected
    assert len({context(device) for device in list_devices()}) >= 5
