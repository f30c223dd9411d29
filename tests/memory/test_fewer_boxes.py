"""More boxes never have a lower upper figure: gaps that matching leaves for what comes after it are luck."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

import oomproof
from oomproof.memory.about import About
from oomproof.memory.allocators import cuda
from oomproof.memory.allocators.replaying import Replay
from oomproof.memory.fewer_boxes import COUNTS, go_with_boxes, most_by_fewer_boxes
from oomproof.memory.settings import Settings
from oomproof.memory.timeline import Builder, Timeline
from thorough import THOROUGH

SEGMENTS = 48 << 20
"""as in test_smaller_steps.py: which of the steps with fewer boxes is worst, their large blocks alone tell"""

MASKS = "mask_rcnn_R_50_FPN_3x.yaml"
FEW_AND_MANY = tuple(count for count in COUNTS if count in (20, 50, 93, 200, 400))


def upper_figures(job: str, card: str, boxes: int, **settings: object) -> tuple[int, int, int]:
    found = oomproof.check(job, on=card, boxes=boxes, **settings)
    return found.allocated.high, found.reserved.high, found.on_device.high


def assert_rising(job: str, card: str, counts: tuple[int, ...], slack: int, **settings: object) -> None:
    figures = [upper_figures(job, card, boxes, **settings) for boxes in counts]
    for fewer, more in pairwise(figures):
        assert all(high >= low - slack for low, high in zip(fewer, more, strict=True)), figures


@pytest.mark.slow
def test_boxes_that_leave_lucky_gaps_are_not_promised_their_luck() -> None:
    assert_rising(MASKS, "A100-40GB", (93, 200), 0, **{"SOLVER.IMS_PER_BATCH": 4})


@THOROUGH
@pytest.mark.parametrize(
    ("job", "images", "precision"),
    [
        (MASKS, 1, "fp32"),
        (MASKS, 4, "fp32"),
        (MASKS, 8, "fp32"),
        ("faster_rcnn_R_50_FPN_3x.yaml", 4, "fp16"),
        ("retinanet_R_50_FPN_3x.yaml", 4, "fp32"),
    ],
)
def test_upper_figures_of_detectron2_never_fall(job: str, images: int, precision: str) -> None:
    assert_rising(job, "A100-40GB", FEW_AND_MANY, SEGMENTS, precision=precision, **{"SOLVER.IMS_PER_BATCH": images})


@THOROUGH
@pytest.mark.parametrize("name", ["ssd300_vgg16", "fcos_resnet50_fpn"])
def test_upper_figures_of_torchvision_never_fall(name: str) -> None:
    assert_rising(f"torchvision:{name}", "RTX 3090", FEW_AND_MANY, SEGMENTS, batch=4)


def test_the_luckier_step_answers_for_the_one_with_fewer_boxes() -> None:
    lucky, unlucky = match(200), match(150)
    assert reserve(unlucky) > reserve(lucky), "150 boxes leave gaps in which the activations find no place"
    assert most_by_fewer_boxes([lucky], replay) >= reserve(unlucky)


def test_blocks_that_do_not_go_with_boxes_stay_as_they_are() -> None:
    step = match(64, channels=64)
    assert [step.shapes[shape] for shape in step.shape[go_with_boxes(step, 64)]] == [(64, 1 << 18)]
    assert most_by_fewer_boxes([match(1)], replay) == 0  # there are no fewer
    assert most_by_fewer_boxes([replace(match(93), about=About())], replay) == 0  # nobody says how many


def match(boxes: int, channels: int = 50) -> Timeline:
    """A block of boxes x anchors, given back, and activations, two of which fit into the gap of 200 boxes."""
    step = Builder()
    step.enter("forward")
    step.free(step.allocate(boxes << 20, kind="temporary", owner="rpn", op="sub", shape=(boxes, 1 << 18)))
    for _ in range(2):
        step.allocate(100 << 20, kind="activation", owner="head", op="relu", shape=(2, channels, 512, 512))
    return replace(step.build(), about=About(settings=Settings({"boxes": boxes}, {"boxes": "boxes"})))


def reserve(timeline: Timeline) -> int:
    return replay(timeline, None).reserved


def replay(timeline: Timeline, capacity: int | None) -> Replay:
    return cuda.replay(timeline, cuda.CudaRules(False, 0), capacity)
