"""RAM and /dev/shm beside the GPU: they grow with workers and batch, and count the data where they were read."""

from __future__ import annotations

from dataclasses import replace

import pytest
from histories import timelines
from hypothesis import given, settings
from hypothesis import strategies as st

from oomproof.errors import InputError
from oomproof.memory.host_memory import TRAINER, WORKER, host_memory, ram_of
from oomproof.memory.runtime import Runtime
from oomproof.memory.timeline import Builder, Timeline

MIB = 1 << 20
BATCH = 30 * MIB


def step(*inputs: int) -> Timeline:
    builder = Builder()
    for size in inputs:
        builder.allocate(size, kind="input", owner="(step)", op="input")
    builder.allocate(700 * MIB, kind="activation", owner="net", op="relu")
    return builder.build()


def test_without_workers() -> None:
    ram, shm = host_memory(step(10 * MIB, 20 * MIB), Runtime())
    assert shm == 0
    assert ram.expected == TRAINER.expected + 2 * BATCH
    assert ram.low == TRAINER.low + 2 * BATCH
    assert ram.high == TRAINER.high + 2 * BATCH


def test_batches_on_their_way_take_shared_memory() -> None:
    ram, shm = host_memory(step(BATCH), Runtime(workers=4, prefetch_factor=3))
    assert shm == 4 * 3 * BATCH
    assert ram.expected == TRAINER.expected + 4 * WORKER.expected + 2 * BATCH + shm
    assert ram.low == TRAINER.low + 4 * WORKER.low + 2 * BATCH
    assert ram.high == TRAINER.high + 4 * WORKER.high + 2 * BATCH + 2 * shm


def test_only_the_batch_counts() -> None:
    small, large = step(BATCH), step(BATCH)
    builder = Builder()
    builder.allocate(BATCH, kind="input", owner="(step)", op="input")
    assert host_memory(small, Runtime(workers=2)) == host_memory(builder.build(), Runtime(workers=2))
    assert host_memory(large, Runtime())[0].expected < host_memory(step(BATCH + 1), Runtime())[0].expected


def test_a_batch_of_its_own_for_each_step_is_one_batch() -> None:
    builder = Builder()
    for _ in range(2):
        batch = builder.allocate(BATCH, kind="input", owner="(step)", op="input")
        builder.free(batch)
    assert host_memory(builder.build(), Runtime(workers=2)) == host_memory(step(BATCH), Runtime(workers=2))


def test_what_the_input_pipeline_keeps_is_counted_where_it_is_known() -> None:
    plain = step(BATCH)
    without = host_memory(plain, Runtime())[0]
    read = replace(plain, about=replace(plain.about, pipeline=500 * MIB, pipeline_high=900 * MIB))
    ram = host_memory(read, Runtime())[0]
    assert ram.expected == without.expected + 500 * MIB
    assert ram.high == without.high + 900 * MIB
    assert ram.low == without.low  # before the buffers are full


@settings(max_examples=60, deadline=None)
@given(timelines(), st.integers(0, 32), st.integers(1, 8))
def test_ranges_hold_and_more_workers_never_take_less(timeline: Timeline, workers: int, prefetch: int) -> None:
    ram, shm = host_memory(timeline, Runtime(workers=workers, prefetch_factor=prefetch))
    assert 0 < ram.low <= ram.expected <= ram.high
    more, more_shm = host_memory(timeline, Runtime(workers=workers + 1, prefetch_factor=prefetch))
    assert more_shm >= shm
    assert (more.low, more.expected, more.high) > (ram.low, ram.expected, ram.high)


@pytest.mark.parametrize(
    ("text", "size"), [("16GiB", 16 << 30), ("32 GB", 32 * 10**9), ("4096m", 4 << 30), (1 << 34, 1 << 34)]
)
def test_ram_is_read_with_its_unit(text: str | int, size: int) -> None:
    assert ram_of(text) == size


@pytest.mark.parametrize("text", ["16", "", "lots", "nanGiB", "16 parsecs", "infGiB"])
def test_unreadable_ram_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="ram must be a size with its unit, such as 16GiB or 32GB, or `this`; got"):
        ram_of(text)


@pytest.mark.parametrize("text", ["512MiB", "-4GiB", "0GiB", 1 << 20])
def test_less_than_the_process_takes_is_refused(text: str | int) -> None:
    with pytest.raises(InputError, match=r"is less than a training process takes by itself: at least 1\.17 GiB"):
        ram_of(text)
