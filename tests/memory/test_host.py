"""RAM and /dev/shm beside the GPU: they grow with workers and batch, and count the data where they were read."""

from __future__ import annotations

from dataclasses import replace

import pytest
from histories import timelines
from hypothesis import given, settings
from hypothesis import strategies as st

from oomproof.errors import InputError
from oomproof.memory.forecast import Range
from oomproof.memory.host_data import HostData
from oomproof.memory.host_memory import (
    FORKED,
    KEPT_BATCHES_AT_WORST,
    KEPT_IMAGES,
    SPAWNED,
    TENSORFLOW,
    TRAINER,
    host_memory,
    host_parts,
    ram_of,
    sum_of,
)
from oomproof.memory.runtime import Runtime
from oomproof.memory.settings import Settings
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
    assert shm == (4 * 3 + 1) * BATCH  # those that wait, and the one that is trained on
    assert ram.expected == TRAINER.expected + 4 * FORKED.expected + BATCH + shm
    assert ram.low == TRAINER.low + 4 * FORKED.low + 2 * BATCH
    assert ram.high == TRAINER.high + 4 * (FORKED.high + 2 * BATCH) + BATCH + 2 * shm


def test_every_process_of_a_machine_counts() -> None:
    (ram, shm), (of_all, shm_of_all) = (host_memory(step(BATCH), Runtime(workers=2, processes=n)) for n in (1, 4))
    assert shm_of_all == 4 * shm > 0
    assert of_all == Range(4 * ram.expected, 4 * ram.low, 4 * ram.high)


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


LIST, ARRAY, PICTURES = 800 * MIB, 200 * MIB, 5000 * MIB
DATA = HostData(LIST, numbers=400 * MIB, containers=100 * MIB, readings=400_000, packed=ARRAY, decoded=PICTURES)


def with_data(**changes: object) -> dict[str, Range]:
    plain = step(BATCH)
    known = replace(plain, about=replace(plain.about, dataset=DATA.as_mapping()))
    return dict(host_parts(known, replace(Runtime(), **changes))[0])


def test_lists_are_copied_into_workers_as_they_are_read() -> None:
    alone = with_data()["annotations"]
    assert alone.expected == LIST
    epoch = {workers: with_data(workers=workers)["annotations"].expected - LIST for workers in (1, 2, 4)}
    assert epoch[1] == 500 * MIB  # all that has reference counts
    assert 900 * MIB < epoch[2] < 2 * 500 * MIB  # in an epoch each reads half of the images, but most pages
    assert epoch[2] < epoch[4] < 4 * 500 * MIB
    assert with_data(workers=4, persistent_workers=True)["annotations"].expected == LIST + 4 * 500 * MIB


def test_arrays_are_shared_by_forked_workers_alone() -> None:
    packed = with_data(workers=4, annotations="buffers")["annotations"].expected
    assert packed == with_data(annotations="buffers")["annotations"].expected
    spawned = with_data(workers=4, annotations="buffers", worker_start="spawn")
    assert spawned["annotations"].expected == packed + 4 * ARRAY
    assert with_data(workers=4, worker_start="spawn")["annotations"].expected == 5 * LIST
    assert spawned["workers"].expected == 4 * SPAWNED.expected
    assert with_data(arrays_mb=100, workers=4)["arrays of the dataset"].expected == 100 * MIB
    assert with_data(arrays_mb=100, workers=4, worker_start="spawn")["arrays of the dataset"].expected == 500 * MIB


def test_packing_takes_more_than_what_comes_later() -> None:
    parts = with_data(annotations="buffers")
    while_packed = parts["annotations"].expected + parts["annotations, while they are packed"].expected + 2 * BATCH
    assert while_packed == LIST + 2 * ARRAY
    much = with_data(annotations="buffers", workers=30)  # more than the list was, by then
    assert much["annotations, while they are packed"].expected == 0


def test_caches_mixing_and_pinned_batches() -> None:
    assert with_data(ram_cache=True)["image cache"].expected == PICTURES
    assert with_data(ram_cache=True, workers=4)["image cache"].expected == PICTURES
    assert with_data(ram_cache=True, workers=4)["image cache"].high > 4 * PICTURES
    assert with_data(ram_cache=True, workers=4, persistent_workers=True)["image cache"].expected == 4 * PICTURES
    mosaic, plain = with_data(workers=2, mixing=4)["workers"], with_data(workers=2)["workers"]
    assert mosaic.expected - plain.expected == 2 * 3 * BATCH
    assert with_data(mixing=4)["augmentation"].expected == 3 * BATCH
    assert with_data(workers=2, pin_memory=True)["pinned batches"].expected == 5 * 32 * MIB  # 30 MiB, rounded up


def test_workers_keep_images_that_are_freed() -> None:
    plain = step(BATCH)
    known = replace(plain, about=replace(plain.about, settings=Settings({"n": 6}, {"batch": "n"})))
    kept = host_parts(known, Runtime(workers=2))[0]["workers"].expected
    assert kept == 2 * (FORKED.expected + KEPT_IMAGES * BATCH // 6)
    trimmed = host_parts(known, Runtime(workers=2, malloc_trim=True))[0]["workers"].expected
    assert trimmed == 2 * FORKED.expected
    large = replace(known, about=replace(known.about, settings=Settings({"n": 1}, {"batch": "n"})))
    assert host_parts(large, Runtime(workers=2))[0]["workers"].expected == 2 * (FORKED.expected + KEPT_IMAGES * BATCH)
    larger = replace(step(40 * MIB), about=large.about)  # such blocks go back to the system
    assert host_parts(larger, Runtime(workers=2))[0]["workers"].expected == 2 * FORKED.expected


def test_workers_that_stack_batches_keep_many_of_them_at_worst() -> None:
    """A batch that fits the heap: 840 MiB were measured in a worker that stacked batches of 12 MiB, 138 images of which
    are 103 MiB."""
    plain = step(12 * MIB)
    known = replace(plain, about=replace(plain.about, settings=Settings({"n": 16}, {"batch": "n"})))
    worst = host_parts(known, Runtime(workers=2))[0]["workers"].high
    assert worst == 2 * (FORKED.high + KEPT_BATCHES_AT_WORST * 12 * MIB) > 2 * 1000 * MIB
    assert host_parts(known, Runtime(workers=2, malloc_trim=True))[0]["workers"].high < 2 * (FORKED.high + 30 * MIB)
    large = replace(step(64 * MIB), about=known.about)
    assert host_parts(large, Runtime(workers=2))[0]["workers"].high < 2 * (FORKED.high + 10 * 110 * MIB)
    by_pytorch = replace(known, about=replace(known.about, stacked_by_workers=False))
    of_images = int(1.5 * KEPT_IMAGES * 12 * MIB / 16)
    assert host_parts(by_pytorch, Runtime(workers=2))[0]["workers"].high == 2 * (FORKED.high + of_images)


def test_tensorflow_has_a_base_of_its_own() -> None:
    plain = step(BATCH)
    ram, _ = host_memory(replace(plain, about=replace(plain.about, framework="tensorflow 2.21.0")), Runtime())
    assert ram.expected == TENSORFLOW.expected + 2 * BATCH


def test_parts_add_up() -> None:
    plain = step(BATCH)
    known = replace(plain, about=replace(plain.about, dataset=DATA.as_mapping(), pipeline=7, pipeline_high=9))
    runtime = Runtime(workers=3, pin_memory=True, ram_cache=True, mixing=4, arrays_mb=5)
    assert sum_of(host_parts(known, runtime)[0]) == host_memory(known, runtime)[0]


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
