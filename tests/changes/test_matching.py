"""Matching in parts gives torchvision's own matches, bit by bit."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
import torch
import torchvision
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.profiler import ProfilerActivity, profile
from torchvision.models.detection._utils import Matcher, SSDMatcher
from torchvision.models.detection.fcos import FCOS
from torchvision.ops import box_iou

from oomproof.changes.torch import matching
from oomproof.changes.torch.matching import ChunkedMatcher, Overlaps, chunk_matching, fcos_matches
from oomproof.errors import InputError

MATCHERS = {
    "rpn": lambda: Matcher(0.7, 0.3, allow_low_quality_matches=True),
    "heads": lambda: Matcher(0.5, 0.5, allow_low_quality_matches=False),
    "retinanet": lambda: Matcher(0.5, 0.4, allow_low_quality_matches=True),
    "ssd": lambda: SSDMatcher(0.5),
}


@st.composite
def box_lists(draw: st.DrawFn, most: int) -> torch.Tensor:
    """Boxes on a coarse grid: equal ones, ties, boxes without area and boxes apart from the others all come."""
    rows = draw(st.lists(st.tuples(*[st.integers(0, 4)] * 4), min_size=1, max_size=most))
    corner = torch.tensor([row[:2] for row in rows], dtype=torch.float32)
    return torch.cat([corner, corner + torch.tensor([row[2:] for row in rows])], dim=1)


@settings(max_examples=100, deadline=None)
@given(box_lists(5), box_lists(24), st.integers(1, 40), st.sampled_from(sorted(MATCHERS)))
def test_the_matches_of_torchvision(boxes: torch.Tensor, anchors: torch.Tensor, pairs: int, kind: str) -> None:
    expected = MATCHERS[kind]()(box_iou(boxes, anchors))
    with patch.object(matching, "PAIRS", pairs):
        assert torch.equal(ChunkedMatcher(MATCHERS[kind]())(Overlaps(boxes, anchors)), expected)


@pytest.mark.parametrize("kind", MATCHERS)
def test_many_anchors(kind: str) -> None:
    noise = torch.Generator().manual_seed(3)
    corner = torch.rand(8_000, 2, generator=noise) * 500
    anchors = torch.cat([corner, corner + 4 + torch.rand(8_000, 2, generator=noise) * 200], dim=1)
    boxes = anchors[::160] + torch.randn(50, 4, generator=noise)
    expected = MATCHERS[kind]()(box_iou(boxes, anchors))
    assert (expected >= 0).sum() >= len(boxes)
    with patch.object(matching, "PAIRS", 17_777):
        assert torch.equal(ChunkedMatcher(MATCHERS[kind]())(Overlaps(boxes, anchors)), expected)


@pytest.mark.parametrize("kind", MATCHERS)
def test_nothing_of_nothing_is_the_largest_overlap(kind: str) -> None:
    """A box without area on an anchor without area: 0 / 0, which torch.max prefers to every number."""
    boxes = torch.tensor([[1.0, 1, 1, 1]])
    anchors = torch.tensor([[0.0, 0, 2, 2], [0, 0, 3, 3], [1, 1, 1, 1], [0, 0, 2, 2]])
    expected = MATCHERS[kind]()(box_iou(boxes, anchors))
    with patch.object(matching, "PAIRS", 2):
        assert torch.equal(ChunkedMatcher(MATCHERS[kind]())(Overlaps(boxes, anchors)), expected)


@pytest.mark.parametrize(("boxes", "anchors"), [(0, 5), (5, 0)])
def test_nothing_to_match_is_refused_as_torchvision_does(boxes: int, anchors: int) -> None:
    with pytest.raises(ValueError, match=r"No .* boxes available") as expected:
        MATCHERS["rpn"]()(torch.zeros(boxes, anchors))
    with pytest.raises(ValueError, match=str(expected.value)):
        ChunkedMatcher(MATCHERS["rpn"]())(Overlaps(torch.zeros(boxes, 4), torch.zeros(anchors, 4)))


class _Head:
    """Takes the place of FCOS's head, to see which matches the model hands it."""

    def compute_loss(self, targets: Any, head_outputs: Any, anchors: Any, matched_idxs: list[torch.Tensor]) -> Any:
        return matched_idxs


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 9), st.integers(1, 500), st.integers(0, 10_000))
def test_the_matches_of_fcos(boxes: int, pairs: int, seed: int) -> None:
    levels, strides = [64, 16, 4], [8, 16, 32]
    anchors = torch.cat([
        torch.tensor([[x * s - s / 2, y * s - s / 2, x * s + s / 2, y * s + s / 2] for y in range(n) for x in range(n)])
        for s, n in zip(strides, (8, 4, 2), strict=True)
    ])  # fmt: skip
    noise = torch.Generator().manual_seed(seed)
    corner = (torch.rand(boxes, 2, generator=noise) * 40).round()
    size = (torch.rand(boxes, 2, generator=noise) * 60).round()
    targets = [{"boxes": torch.cat([corner, corner + size], dim=1)}]
    model = FCOS.__new__(FCOS)
    model.__dict__.update(head=_Head(), center_sampling_radius=1.5, _modules={}, _parameters={}, _buffers={})
    (expected,) = FCOS.compute_loss(model, targets, {}, [anchors], levels)
    with patch.object(matching, "PAIRS", pairs):
        assert torch.equal(fcos_matches(targets[0]["boxes"], anchors, levels, 1.5), expected)


def peak(run: Any) -> int:
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        run()
    live = most = 0
    events = profiler.profiler.kineto_results.events()
    for _, nbytes in sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]"):
        live += nbytes
        most = max(most, live)
    return most


@pytest.mark.parametrize("kind", ["rpn", "ssd", "fcos"])
def test_memory_does_not_grow_with_boxes(kind: str) -> None:
    anchors = torch.rand(8_000, 4).cumsum(1)

    def match(count: int) -> None:
        boxes = anchors[:count].clone()
        if kind == "fcos":
            fcos_matches(boxes, anchors, [4_000, 4_000], 1.5)
        else:
            ChunkedMatcher(MATCHERS[kind]())(Overlaps(boxes, anchors))

    with patch.object(matching, "PAIRS", 40_000):
        few, many = peak(lambda: match(20)), peak(lambda: match(200))
    assert many < 1.1 * few
    assert many < 200 * 8_000 * 4 / 2  # half of one number a pair


def test_what_it_is_applied_to() -> None:
    def paths(name: str) -> list[str]:
        model = torchvision.models.get_model(name, weights=None, weights_backbone=None, num_classes=3)
        return chunk_matching(model)

    assert paths("maskrcnn_resnet50_fpn") == ["rpn", "roi_heads"]
    assert paths("ssdlite320_mobilenet_v3_large") == [""]


def test_models_and_matchers_it_does_not_know() -> None:
    class Own(Matcher):
        pass

    with pytest.raises(InputError, match=r"none of torchvision's anchor matching .*leave matching=whole"):
        chunk_matching(torch.nn.Linear(2, 2))
    with pytest.raises(InputError, match="the model has a Own"):
        ChunkedMatcher(Own(0.5, 0.4))
