"""The CUDA caching allocator: hand-worked cases, a second model to agree with, and what must hold for every history."""

from __future__ import annotations

import doctest
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from naive_cuda import ENDLESS, Naive

from oomproof.errors import InputError
from oomproof.memory.allocators import cuda
from oomproof.memory.allocators.cuda import CudaRules, Replay, event_order, place_blocks, replay
from oomproof.memory.timeline import Builder, Timeline

MIB = 1 << 20
EXPANDABLE = CudaRules(expandable_segments=True)


def history(*events: tuple[str, int]) -> Timeline:
    """("+", bytes) allocates, ("-", n) frees the n-th block allocated."""
    step = Builder()
    for sign, number in events:
        if sign == "+":
            step.allocate(number, kind="activation", owner="net", op="op")
        else:
            step.free(number)
    return step.build()


def mib(result: Replay) -> tuple[float, float]:
    return result.allocated / MIB, result.reserved / MIB


@pytest.mark.parametrize(
    ("size", "allocated", "reserved", "why"),
    [
        (1, 512, 2 * MIB, "512 B is the granule; small requests share segments of 2 MiB"),
        (513, 1024, 2 * MIB, "two granules"),
        (MIB, MIB, 2 * MIB, "1 MiB is the largest small request"),
        (MIB + 1, MIB + 512, 20 * MIB, "up to 10 MiB share segments of 20 MiB"),
        (10 * MIB - 512, 10 * MIB - 512, 20 * MIB, "the last that shares"),
        (10 * MIB, 10 * MIB, 10 * MIB, "from 10 MiB on, a segment of its own, in steps of 2 MiB"),
        (10 * MIB + 1, 10 * MIB + 512, 12 * MIB, "the rest of 2 MiB less 512 B is more than 1 MiB, so it is cut off"),
        (11 * MIB, 12 * MIB, 12 * MIB, "a rest of 1 MiB is not more than 1 MiB, so it is not cut off, and counts"),
        (0, 0, 0, "an empty tensor has no block"),
    ],
)
def test_one_block(size: int, allocated: int, reserved: int, why: str) -> None:
    result = replay(history(("+", size)))
    assert (result.allocated, result.reserved) == (allocated, reserved), why
    assert result.idle == reserved - allocated
    assert result.failed is None


def test_two_blocks_share_a_segment_of_20_mib() -> None:
    assert mib(replay(history(("+", 9 * MIB), ("+", 9 * MIB)))) == (18, 20)


def test_a_third_one_needs_another() -> None:
    # 20 - 9 - 9 leaves 2 MiB, too little for 3.
    assert mib(replay(history(("+", 9 * MIB), ("+", 9 * MIB), ("+", 3 * MIB)))) == (21, 40)


def test_neighbours_merge_when_freed() -> None:
    # 8 + 8 out of 20 MiB; both freed, the whole 20 serves 16 again without a new segment.
    assert mib(replay(history(("+", 8 * MIB), ("+", 8 * MIB), ("-", 0), ("-", 1), ("+", 16 * MIB)))) == (16, 20)


def test_blocks_of_two_segments_never_merge() -> None:
    # Two segments of 12 MiB, both free, are not one of 24.
    assert mib(replay(history(("+", 12 * MIB), ("+", 12 * MIB), ("-", 0), ("-", 1), ("+", 24 * MIB)))) == (24, 48)


def test_small_and_large_pools_do_not_lend() -> None:
    # 20 MiB lie free in the large pool; a small request takes 2 MiB more all the same.
    assert mib(replay(history(("+", 2 * MIB), ("-", 0), ("+", 1024)))) == (2, 22)


def test_best_fit_takes_the_smallest_then_the_lowest() -> None:
    # Free segments of 30, 14, 14 MiB: 13 MiB goes to the first of 14 (a rest of 1 MiB is not cut).
    timeline = history(
        *(("+", n * MIB) for n in (30, 14, 14)), ("-", 0), ("-", 1), ("-", 2), ("+", 13 * MIB), ("+", 13 * MIB)
    )
    result, where = place_blocks(timeline)
    assert result.reserved == 58 * MIB
    assert where.address[3] == where.address[1] < where.address[4] == where.address[2]
    assert where.size[3] == 14 * MIB


def test_cached_segments_go_back_before_memory_runs_out() -> None:
    # 30 MiB cached, 40 wanted, 50 there: the 30 go back (one retry), and the peak stays 40.
    result = replay(history(("+", 30 * MIB), ("-", 0), ("+", 40 * MIB)), capacity=50 * MIB)
    assert (result.reserved, result.reserved_end, result.retries, result.failed) == (40 * MIB, 40 * MIB, 1, None)


def test_a_split_segment_cannot_go_back() -> None:
    # 2 MiB in use pin a whole segment of 30: only 20 of 50 are left for 40. The failing block's row is told.
    timeline = history(("+", 30 * MIB), ("-", 0), ("+", 2 * MIB), ("+", 40 * MIB))
    result = replay(timeline, capacity=50 * MIB)
    assert (result.failed, result.retries, result.reserved) == (2, 0, 30 * MIB)


def test_expandable_pages_go_back_where_a_segment_cannot() -> None:
    # The same history: pages of 20 MiB. 30 -> 40 MiB backed; 2 MiB in use pin one page, the other 20 go back.
    timeline = history(("+", 30 * MIB), ("-", 0), ("+", 2 * MIB), ("+", 40 * MIB))
    result = replay(timeline, EXPANDABLE, capacity=60 * MIB)
    # 18 MiB free behind the 2, then 22 more needed: two pages. No page needs to go back.
    assert (result.failed, result.retries, result.reserved) == (None, 0, 60 * MIB)


def test_expandable_segment_grows_in_place() -> None:
    # 2 + 30 MiB: a page of 20, then its free 18 and one page more; cudaMalloc would have taken 20 + 30.
    timeline = history(("+", 2 * MIB), ("+", 30 * MIB))
    assert mib(replay(timeline)) == (32, 50)
    assert mib(replay(timeline, EXPANDABLE)) == (32, 40)


def test_expandable_small_pages_are_2_mib() -> None:
    assert mib(replay(history(("+", MIB), ("+", MIB), ("+", MIB)), EXPANDABLE)) == (3, 4)


def test_expandable_cuts_to_the_granule() -> None:
    # By default a rest of 1 MiB stays with the block (12 counted); expandable blocks are cut at 512 B.
    assert replay(history(("+", 11 * MIB)), EXPANDABLE).allocated == 11 * MIB


@pytest.mark.parametrize("rule", [CudaRules(), EXPANDABLE])
def test_a_rest_of_one_granule_is_cut_off(rule: CudaRules) -> None:
    # 1 MiB free between two blocks in use: a request for 512 B less takes just that.
    _, where = place_blocks(history(("+", MIB), ("+", MIB), ("-", 0), ("+", MIB - 512)), rule)
    assert where.size[2] == MIB - 512


def test_expandable_cuts_the_end_that_can_grow_last() -> None:
    # A page of 20 MiB: 12 freed, 4 in use, 4 free at the end. The 4 fit 3 best, but they can grow: the 12 are cut.
    _, where = place_blocks(history(("+", 12 * MIB), ("+", 4 * MIB), ("-", 0), ("+", 3 * MIB)), EXPANDABLE)
    assert where.address[2] == where.address[0]


def test_expandable_unmaps_free_pages_of_the_other_pool() -> None:
    # 40 MiB of the large pool free and backed; 2 MiB for the small pool do not fit in 41: the pages go back.
    result = replay(history(("+", 40 * MIB), ("-", 0), ("+", 512)), EXPANDABLE, capacity=41 * MIB)
    assert (result.retries, result.reserved, result.reserved_end) == (1, 40 * MIB, 2 * MIB)


def test_expandable_fills_a_hole_before_the_end() -> None:
    # Three pages of 20 MiB; the first goes back to make room for 2 MiB of the small pool. When 20 MiB are wanted
    # again and the small pages have gone, the hole at the lowest address is backed, not a fourth page at the end.
    events = [*(("+", 20 * MIB),) * 3, ("-", 0), ("+", 512), ("-", 3), ("+", 20 * MIB)]
    result, where = place_blocks(history(*events), EXPANDABLE, capacity=60 * MIB)
    assert (result.failed, result.retries, result.reserved_end) == (None, 2, 60 * MIB)
    assert where.address[4] == where.address[0]


def test_expandable_failure_keeps_what_was_mapped_on_the_way() -> None:
    # Pages 0 and 2 are given back, 1 stays in use. 45 MiB need a run of three pages behind it: 60 do not fit in 70.
    events = [*(("+", 20 * MIB),) * 3, ("-", 0), ("-", 2), ("+", 51 * MIB), ("+", 45 * MIB)]
    result = replay(history(*events), EXPANDABLE, capacity=70 * MIB)
    assert (result.failed, result.retries) == (3, 1)
    # After the 20 MiB behind page 1 were free already, only 31 more were wanted: two pages, 20 + 40 + 20 > 70.
    assert result.reserved == 60 * MIB


def test_max_split_keeps_large_blocks_whole() -> None:
    # A free block of 64 MiB would be cut for 4 MiB; with a limit of 32 it is left alone and 20 MiB are taken anew.
    timeline = history(("+", 64 * MIB), ("-", 0), ("+", 4 * MIB))
    assert replay(timeline).reserved == 64 * MIB
    assert replay(timeline, CudaRules(max_split_size_mb=32)).reserved == 84 * MIB


@pytest.mark.parametrize(("request_mib", "reserved_mib"), [(46, 64), (44, 108)])
def test_oversize_block_serves_only_what_nearly_fills_it(request_mib: int, reserved_mib: int) -> None:
    # Within 20 MiB (46 of 64) it is handed out whole, and counts whole; from 20 MiB on (44) it is not.
    timeline = history(("+", 64 * MIB), ("-", 0), ("+", request_mib * MIB))
    result = replay(timeline, CudaRules(max_split_size_mb=32))
    assert result.reserved == reserved_mib * MIB


def test_under_max_split_only_what_is_needed_goes_back() -> None:
    # Cached 40 and 64, 25 wanted, 104 there: the 40 is the smallest that may go alone; the 64 stays.
    timeline = history(("+", 40 * MIB), ("+", 64 * MIB), ("-", 0), ("-", 1), ("+", 25 * MIB))
    kept = replay(timeline, CudaRules(max_split_size_mb=32), capacity=104 * MIB)
    assert (kept.retries, kept.failed, kept.reserved_end) == (1, None, (64 + 26) * MIB)


def test_under_max_split_the_largest_go_first() -> None:
    # 90 wanted, none of 40, 64, 48 is enough alone: 64 and 48 go (112 >= 90), the 40 stays.
    timeline = history(*(("+", n * MIB) for n in (40, 64, 48)), ("-", 0), ("-", 1), ("-", 2), ("+", 90 * MIB))
    kept = replay(timeline, CudaRules(max_split_size_mb=32), capacity=152 * MIB)
    assert (kept.retries, kept.failed, kept.reserved_end) == (1, None, 130 * MIB)


@pytest.mark.parametrize("value", [1, 20, -5])
def test_max_split_that_pytorch_refuses(value: int) -> None:
    with pytest.raises(InputError, match="more than 20"):
        CudaRules(max_split_size_mb=value)


def test_idle_is_what_lay_unused_at_the_peak() -> None:
    # 12 MiB cached (too small for 14), 14 in use: 26 reserved, 12 of them idle.
    assert replay(history(("+", 12 * MIB), ("-", 0), ("+", 14 * MIB))).idle == 12 * MIB


def test_empty_timeline() -> None:
    assert replay(Builder().build()) == Replay(0, 0, 0, 0, 0, None)


def test_a_death_and_a_birth_on_one_tick_reuse_the_block() -> None:
    timeline = history(("+", 12 * MIB), ("+", 12 * MIB))
    timeline.died[0] = timeline.born[1]
    assert replay(timeline).reserved == 12 * MIB


def test_docstring() -> None:
    assert doctest.testmod(cuda).failed == 0


sizes = st.one_of(
    st.integers(0, 5000),
    st.integers(0, 64).map(lambda n: n * MIB // 4),
    st.integers(1, 40 * MIB),
    st.sampled_from([MIB, MIB + 1, 10 * MIB, 10 * MIB - 1, 20 * MIB, 32 * MIB, 33 * MIB, 64 * MIB]),
)
steps = st.lists(st.one_of(st.tuples(st.just("+"), sizes), st.tuples(st.just("-"), st.integers(0, 60))), max_size=60)
rules = st.builds(CudaRules, expandable_segments=st.booleans(), max_split_size_mb=st.sampled_from([0, 21, 33]))
capacities = st.one_of(st.none(), st.integers(1, 300).map(lambda n: n * MIB))


def legal(events: list[tuple[str, int]]) -> Timeline:
    made = 0
    kept = []
    for sign, number in events:
        made += sign == "+"
        if sign == "+" or number < made:
            kept.append((sign, number))
    return history(*kept)


@settings(max_examples=600, deadline=None)
@given(steps, rules, capacities)
@example([("+", 20 * MIB)] * 3 + [("-", 0), ("+", 512), ("-", 2), ("+", 41 * MIB)], EXPANDABLE, 62 * MIB)
def test_agrees_with_the_naive_model(events: list[tuple[str, int]], rule: CudaRules, capacity: int | None) -> None:
    timeline = legal(events)
    result, where = place_blocks(timeline, rule, capacity)
    naive = Naive(
        rule.expandable_segments, rule.max_split_size_mb * MIB or ENDLESS, ENDLESS if capacity is None else capacity
    )
    blocks, peak, reserved, failed = {}, 0, 0, None
    for event in event_order(timeline).tolist():
        if event < 0:
            naive.free(blocks[~event])
            continue
        block = naive.serve(int(timeline.bytes[event]))
        if block is None:
            failed = event
            break
        blocks[event] = block
        assert where.size[event] == block.size
        peak, reserved = max(peak, naive.allocated), max(reserved, naive.reserved())
    assert (result.allocated, result.reserved_end, result.failed) == (peak, naive.reserved(), failed)
    if rule.expandable_segments and (result.retries or failed is not None):
        assert result.reserved >= reserved, "pages may have been mapped and given back within one request"
    else:
        assert result.reserved == reserved


@settings(max_examples=200, deadline=None)
@given(steps, rules, capacities)
def test_what_must_always_hold(events: list[tuple[str, int]], rule: CudaRules, capacity: int | None) -> None:
    timeline = legal(events)
    result, where = place_blocks(timeline, rule, capacity)
    assert result.reserved >= result.allocated
    assert result.reserved >= result.reserved_end
    assert 0 <= result.idle <= result.reserved
    if capacity is not None:
        assert result.reserved <= capacity
        assert replay(timeline, rule, capacity=replay(timeline, rule).reserved).failed is None
    else:
        assert result.failed is None and result.retries == 0
    if result.failed is None:
        assert result.allocated >= timeline.peak().bytes
        assert np.array_equal(where.size > 0, timeline.bytes > 0)
    assert np.all(where.size[where.size > 0] >= timeline.bytes[where.size > 0])
    end = timeline.ticks if result.failed is None else int(timeline.born[result.failed])
    for tick in range(end):
        live = np.flatnonzero(timeline.live(tick) & (where.size > 0))
        spans = sorted(zip(where.address[live].tolist(), where.size[live].tolist(), strict=True))
        assert all(start + size <= following for (start, size), (following, _) in pairwise(spans))


@settings(max_examples=100, deadline=None)
@given(st.lists(sizes, max_size=30), st.permutations(range(30)), rules)
def test_all_freed_means_all_can_go_back(requests: list[int], order: list[int], rule: CudaRules) -> None:
    freed = [*(("+", n) for n in requests), *(("-", n) for n in order if n < len(requests))]
    first = replay(history(*freed), rule)
    everything = -(-(first.reserved + 1) // (20 * MIB)) * 20 * MIB
    second = replay(history(*freed, ("+", everything)), rule, capacity=everything)
    assert (second.failed, second.reserved_end) == (None, everything)


@settings(max_examples=100, deadline=None)
@given(st.lists(sizes, max_size=30), st.permutations(range(30)))
def test_expandable_cache_serves_the_same_again(requests: list[int], order: list[int]) -> None:
    # Not true by default: best fit may place the second round worse than the first.
    once = [*(("+", n) for n in requests), *(("-", n) for n in order if n < len(requests))]
    twice = [*once, *(("+", n) for n in requests)]
    assert replay(history(*twice), EXPANDABLE).reserved == replay(history(*once), EXPANDABLE).reserved
