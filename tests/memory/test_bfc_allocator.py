"""TensorFlow's BFC allocator: hand-worked cases, a second model to agree with, and the real one."""

from __future__ import annotations

import doctest
import json
import os
import random
import subprocess
import sys
from importlib.util import find_spec
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive_bfc import Chunk, NaiveBfc

from oomproof.memory.allocators import bfc
from oomproof.memory.allocators.bfc import replay, replay_at_once, smallest_limit
from oomproof.memory.allocators.bfc_regions import Regions
from oomproof.memory.timeline import Builder, Timeline

MIB = 1 << 20


def history(*events: tuple[str, int]) -> Timeline:
    """("+", bytes) allocates, ("-", n) frees the n-th block allocated."""
    step = Builder()
    for sign, number in events:
        if sign == "+":
            step.allocate(number, kind="activation", owner="net", op="op")
        else:
            step.free(number)
    return step.build()


@pytest.mark.parametrize(
    ("size", "allocated", "reserved", "why"),
    [
        (1, 256, 2 * MIB, "256 B is the granule; the first region has 2 MiB"),
        (257, 512, 2 * MIB, "two granules"),
        (2 * MIB, 2 * MIB, 2 * MIB, "the whole first region"),
        (
            2 * MIB + 1,
            4 * MIB,
            4 * MIB,
            "doubled until it is enough; a rest below the request is not cut off, and counts",
        ),
        (200 * MIB, 256 * MIB, 256 * MIB, "a rest below 128 MiB and below the request is not cut off either"),
        (300 * MIB, 300 * MIB, 512 * MIB, "a rest of more than 128 MiB is cut off"),
        (0, 0, 0, "an empty tensor has no block"),
    ],
)
def test_one_block(size: int, allocated: int, reserved: int, why: str) -> None:
    result = replay(history(("+", size)))
    assert (result.allocated, result.reserved, result.failed) == (allocated, reserved, None), why


def test_a_dump_of_the_real_allocator() -> None:
    """Regions, pool and memory in use as TensorFlow 2.21 logged them when a limit of 600,000,000 bytes was used up."""
    memory = Regions(600_000_000, growth=True)
    first = memory.serve(4 * MIB)
    passing = [memory.serve(32 * MIB) for _ in range(2)]
    lasting = memory.serve(32 * MIB)
    for block in passing:
        assert block is not None
        memory.free(*block, 32 * MIB)
    big = [memory.serve(128 * MIB) for _ in range(3)]
    assert [size // MIB for size in memory.regions] == [4, 32, 32, 64, 128, 256]
    assert memory.reserved == 516 * MIB
    assert sum(block[1] for block in (first, lasting, *big) if block) == 420 * MIB
    assert memory.next_region == 512 * MIB
    assert memory.serve(128 * MIB) is None


def test_neighbours_merge_and_regions_do_not() -> None:
    # 2 and 4 MiB of two regions lie free; 5 MiB need a third.
    assert replay(history(("+", 2 * MIB), ("+", 4 * MIB), ("-", 0), ("-", 1), ("+", 5 * MIB))).reserved == 14 * MIB
    # Two chunks of one region are one again when both are free.
    assert replay(history(("+", MIB), ("+", MIB), ("-", 0), ("-", 1), ("+", 2 * MIB))).reserved == 2 * MIB


def test_free_regions_go_back_before_memory_runs_out() -> None:
    result = replay(history(("+", 30 * MIB), ("-", 0), ("+", 40 * MIB)), capacity=50 * MIB)
    assert (result.failed, result.retries, result.reserved_end) == (None, 1, 50 * MIB)


def test_one_region_has_no_gaps_between_regions() -> None:
    # With growth the limit is cut into regions, and 40 MiB find no place in what is left; at once they do.
    timeline = history(("+", 3 * MIB), ("+", 20 * MIB), ("+", 40 * MIB))
    assert replay(timeline, capacity=66 * MIB).failed == 2
    assert replay_at_once(timeline, 66 * MIB).failed is None


def test_docstrings() -> None:
    assert doctest.testmod(bfc).attempted > 3
    assert doctest.testmod(bfc).failed == 0


sizes = st.one_of(st.integers(1, 4096), st.integers(1, 8 * MIB), st.integers(MIB, 300 * MIB))
events = st.lists(
    st.one_of(sizes.map(lambda size: ("+", size)), st.integers(0, 60).map(lambda n: ("-", n))), max_size=60
)


@settings(max_examples=200, deadline=None)
@given(events, st.one_of(st.none(), st.integers(MIB, 600 * MIB)), st.booleans())
def test_the_same_as_the_naive_model(wanted: list[tuple[str, int]], limit: int | None, growth: bool) -> None:
    capacity = limit if limit is not None else 1 << 50
    fast, slow = Regions(capacity, growth or limit is None), NaiveBfc(capacity, growth or limit is None)
    held: list[tuple[tuple[int, int], Chunk, int]] = []
    for sign, number in wanted:
        if sign == "-":
            if number < len(held):
                block, chunk, size = held.pop(number)
                fast.free(*block, size)
                slow.free(chunk)
            continue
        size = -(-number // 256) * 256
        block, chunk = fast.serve(size), slow.serve(size)
        assert (block is None) == (chunk is None)
        if block is not None and chunk is not None:
            assert block[1] == chunk.size
            held.append((block, chunk, size))
        assert (fast.reserved, fast.peak) == (slow.pool(), slow.peak_pool)
    spans = sorted(block for block, _, _ in held)
    assert all(a + size <= b for (a, size), (b, _) in pairwise(spans))


@settings(max_examples=60, deadline=None)
@given(events, st.booleans())
def test_the_smallest_limit_works_and_is_no_less_than_the_peak(wanted: list[tuple[str, int]], growth: bool) -> None:
    step = Builder()
    for sign, number in wanted:
        if sign == "+":
            step.allocate(number, kind="activation", owner="net", op="op")
        elif number < len(step):
            step.free(number)
    timeline = step.build()
    limit = smallest_limit(timeline, growth=growth)
    assert limit >= timeline.round_up(256).peak().bytes
    assert (replay(timeline, limit) if growth else replay_at_once(timeline, limit)).failed is None
    assert replay_at_once(timeline).reserved >= timeline.round_up(256).peak().bytes


# oneDNN's CPU allocator in TensorFlow is a BFCAllocator with growth, for blocks of 256 KiB and more.
REAL = """
import json, sys
import tensorflow as tf
found, held = [], []
for sign, number in json.loads(sys.argv[1]):
    if sign == "+":
        held.append(tf.raw_ops.Empty(shape=tf.constant([number // 4]), dtype=tf.float32))
    else:
        held[number] = None
    found.append(tf.config.experimental.get_memory_info("CPU:0"))
print("FOUND", json.dumps(found))
"""


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.skipif(find_spec("tensorflow") is None, reason="TensorFlow is not installed")
def test_the_same_as_tensorflows_own() -> None:
    """Bytes in use after every allocation, rests that were not cut off included."""
    chance, wanted, held, made = random.Random(5), list[tuple[str, int]](), list[int](), 0
    for _ in range(250):
        if held and chance.random() < 0.45:
            wanted.append(("-", held.pop(chance.randrange(len(held)))))
        else:
            wanted.append(("+", 4 * (chance.choice((75_000, 300_000, 1_000_000, 5_000_000)) + chance.randrange(1000))))
            held.append(made)
            made += 1
    environment = {**os.environ, "TF_ENABLE_ONEDNN_OPTS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    run = subprocess.run(
        [sys.executable, "-c", REAL, json.dumps(wanted)], env=environment, capture_output=True, text=True, check=True
    )
    real = json.loads(run.stdout.split("FOUND")[1])
    memory, blocks, in_use = Regions(None, growth=True), list[tuple[int, int]](), 0
    for (sign, number), told in zip(wanted, real, strict=True):
        if sign == "+":
            block = memory.serve(-(-number // 256) * 256)
            assert block is not None
            blocks.append(block)
            in_use += block[1]
        else:
            memory.free(*blocks[number], 0)
            in_use -= blocks[number][1]
        assert told["current"] == in_use


def test_no_room_at_all_serves_nothing() -> None:
    step = Builder()
    step.allocate(MIB, kind="parameter", owner="fc", op="variable")
    for serve in (replay, replay_at_once):
        assert serve(step.build(), 0).failed == 0
