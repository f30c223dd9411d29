"""What a micro-batch counts, held against losses divided as the API divides them. The API is not needed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from oomproof.changes.tf_object_detection.shares import share_of, why_not_exact

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.slow

RNG = np.random.default_rng(0)
LOSSES = RNG.uniform(0, 3, (8, 10)).astype("float32")
"""of 8 images with 10 anchors"""
MATCHED = (RNG.uniform(0, 1, (8, 10)) < 0.2).astype("float32")
MATCHED[4:6] = 0.0  # a micro-batch in which nothing matches


def whole_from(kind: str, model: Any, pieces: int, loss_of: Any, labels_of: Any) -> float:
    share, size = share_of(tf, kind, model), 8 // pieces
    total = counted = 0.0
    for place in range(pieces):
        rows = slice(place * size, (place + 1) * size)
        loss = float(loss_of(model, rows))
        found = share(labels_of(rows), size, 8)
        total += float(found.own) * loss
        counted += float(found.count)
    return total / max(counted, 1.0)


def ssd_loss(model: Any, rows: slice) -> float:
    matched = MATCHED[rows]
    model._localization_loss(LOSSES[rows], weights=matched)
    divisor = max(matched.sum(), 1.0) if model._normalize_loss_by_num_matches else 1.0
    return float((LOSSES[rows] * matched).sum() / divisor)


@pytest.mark.parametrize("normalised", [True, False])
@pytest.mark.parametrize("pieces", [2, 4, 8])
def test_ssd(pieces: int, normalised: bool) -> None:
    model = SimpleNamespace(
        _normalize_loss_by_num_matches=normalised, _localization_loss=lambda losses, weights: losses * weights
    )
    whole = ssd_loss(model, slice(0, 8))
    found = whole_from("ssd", model, pieces, ssd_loss, lambda rows: {})
    assert found == pytest.approx(whole, rel=1e-5)
    plain = np.mean([ssd_loss(model, slice(at, at + 8 // pieces)) for at in range(0, 8, 8 // pieces)])
    assert plain != pytest.approx(whole, rel=0.01), "the mean over micro-batches is another number"


@pytest.mark.parametrize("pieces", [2, 4, 8])
def test_center_net_by_objects_and_r_cnn_by_images(pieces: int) -> None:
    def by_objects(model: Any, rows: slice) -> float:
        return float((LOSSES[rows] * MATCHED[rows]).sum() / max(np.count_nonzero(MATCHED[rows]), 1))

    def by_images(model: Any, rows: slice) -> float:
        return float(LOSSES[rows].sum(axis=1).mean())

    def labels(rows: slice) -> Any:
        return {"groundtruth_weights": [tf.constant(each) for each in MATCHED[rows]]}

    for kind, loss in (("center_net", by_objects), ("faster_rcnn", by_images)):
        whole = loss(None, slice(0, 8))
        assert whole_from(kind, None, pieces, loss, labels) == pytest.approx(whole, rel=1e-5)


def test_where_equality_cannot_hold_it_is_said() -> None:
    assert why_not_exact("ssd", masks=False, several_tasks=False, draws=False) == ()
    assert "mask loss" in " ".join(why_not_exact("faster_rcnn", masks=True, several_tasks=False, draws=False))
    assert "keypoints" in " ".join(why_not_exact("center_net", masks=False, several_tasks=True, draws=False))
