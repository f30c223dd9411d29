"""More work never has a lower upper figure: gaps that one batch leaves and the next does not are luck."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oomproof
from oomproof.memory.allocators import cuda
from oomproof.memory.allocators.replaying import Replay
from oomproof.memory.smaller_steps import A_DOUBLING, most_by_smaller
from oomproof.memory.timeline import Builder, Timeline
from thorough import THOROUGH

SEGMENTS = 48 << 20
"""the allocator takes 20 MiB at a time for blocks below 10 MiB: two segments, with the upper figure's margin"""

SSD = "torchvision:ssd300_vgg16"
SIZES_OF_SSD = ("300x300", "512x512", "512x640", "512x768", "640x768", "768x768", "768x896")


def high(job: str, **given_settings: object) -> int:
    return oomproof.check(job, on="H100", **given_settings).on_device.high


@pytest.mark.thorough
@pytest.mark.slow
def test_a_larger_image_that_is_lucky_is_not_promised_its_luck() -> None:
    assert high(SSD, batch=8, image_size="768x768") >= high(SSD, batch=8, image_size="512x768")


@THOROUGH
@pytest.mark.parametrize("card", ["H100", "RTX 3090", "T4"])
def test_upper_figures_of_a_sweep_never_fall(card: str) -> None:
    rows = oomproof.sweep(SSD, card, "image_size", SIZES_OF_SSD[::-1], batch=8).rows
    assert [size for size, _ in rows] == [tuple(map(int, size.split("x"))) for size in SIZES_OF_SSD[::-1]]
    figures = [row.on_device.high for _, row in rows]
    assert figures == sorted(figures, reverse=True)


@THOROUGH
def test_upper_figures_of_single_checks_never_fall_as_images_grow() -> None:
    figures = [high(SSD, batch=8, image_size=size) for size in SIZES_OF_SSD]
    assert figures == sorted(figures)


@THOROUGH
@pytest.mark.parametrize("name", ["ssd300_vgg16", "vit_b_16", "densenet121", "retinanet_resnet50_fpn", "mobilenet_v2"])
@given(fewer=st.integers(1, 11), more=st.integers(1, 6))
@settings(max_examples=6, deadline=None)
def test_larger_batches(name: str, fewer: int, more: int) -> None:
    job = f"torchvision:{name}"
    size = {"image_size": "300x400"} if name.startswith("retina") else {}
    assert high(job, batch=fewer + more, **size) >= high(job, batch=fewer, **size) - SEGMENTS


def test_the_model_stays_as_large_as_it_is() -> None:
    step = Builder()
    step.allocate(50 << 20, kind="parameter", owner="", op="")
    assert most_by_smaller(step.build(), replay) == 0  # there is no smaller step
    step.free(step.allocate(300 << 20, kind="activation", owner="", op=""))
    reserved = most_by_smaller(step.build(), replay)
    assert (50 << 20) + (300 << 20) * 2 ** (-1 / A_DOUBLING) <= reserved <= 350 << 20


def test_steps_of_one_kind_are_looked_at_in_the_same_sizes() -> None:
    seen: dict[int, set[int]] = {}
    for images in (8, 9):
        step = Builder()
        step.allocate(images * 37_000_000, kind="activation", owner="", op="")
        sizes = seen[images] = set()
        most_by_smaller(step.build(), lambda history, room, sizes=sizes: note(history, sizes))  # type: ignore[misc]
    assert len(seen[8] & seen[9]) >= len(seen[8]) - 3, "all of the smaller step's but the smallest"
    assert max(seen[8]) <= 8 * 37_000_000


def note(history: Timeline, sizes: set[int]) -> Replay:
    sizes.add(round(int(history.bytes.sum()), -3))
    return replay(history, None)


def replay(timeline: Timeline, capacity: int | None) -> Replay:
    return cuda.replay(timeline, cuda.CudaRules(False, 0), capacity)
