"""Detectron2 between epochs: images at their test size, results at the size they are stored in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import oomproof
from oomproof.api.check import forecast_step
from oomproof.memory.batch_spec import BatchSpec, ImageSpec
from oomproof.memory.cards.devices import find_device
from oomproof.memory.forecast import Forecast
from oomproof.memory.validation import Validation
from oomproof.sources import open_job
from oomproof.sources.detectron2.blueprint import inference
from oomproof.sources.detectron2.blueprint.inference import find_worst_count
from oomproof.sources.settings import resolve
from oomproof.trace.request import TraceRequest

MASKS = "COCO-InstanceSegmentation/mask_rcnn_R_50_FPN_1x.yaml"
OTHERS = (
    "COCO-InstanceSegmentation/mask_rcnn_R_50_C4_1x.yaml",
    "COCO-Detection/retinanet_R_50_FPN_1x.yaml",
    "COCO-PanopticSegmentation/panoptic_fpn_R_50_1x.yaml",
    "Misc/cascade_mask_rcnn_R_50_FPN_1x.yaml",
    "COCO-Keypoints/keypoint_rcnn_R_50_FPN_1x.yaml",
)


def validated(name: str, how: Validation, *images: tuple[int, int], real: bool = False) -> Forecast:
    job, device = open_job(name), find_device("T4")
    settings = resolve(job, {"real": real})
    batch = BatchSpec(tuple(ImageSpec(height, width, 0) for height, width in images)) if images else None
    step = job.trace(TraceRequest(settings, device, validation=how, batch=batch))
    return forecast_step(step, device, settings)


def test_masks_are_drawn_at_the_size_that_images_are_stored_in() -> None:
    usual = validated(MASKS, Validation())
    assert any("480x640" in note and "--data" in note for note in usual.notes)
    large, larger = (validated(MASKS, Validation(), (height, 2 * height)) for height in (1500, 2000))
    for answer in (large, larger):
        assert not answer.notes and answer.op == "grid_sampler_2d"
    # Masks with a bool for every pixel, and those of the image before; a place (8 bytes) and a value (4) for those that
    # are drawn at a time. Fewer than 100, since those of 1 GiB as floats are drawn at once: 59 and 33 are the most.
    # The last ones of several parts are still there as bools. Features are those of 666x1333 pixels.
    counts = [find_worst_count(100, (height, 2 * height)) for height in (1500, 2000)]
    assert counts == [59, 100]
    drawing, more = (2 * 59 + 12 * 59) * 2 * 1500**2, (2 * 100 + 13 * 34) * 2 * 2000**2
    assert large.kinds["temporary"] > drawing
    assert larger.kinds["temporary"] - large.kinds["temporary"] == pytest.approx(more - drawing, rel=0.05)


@pytest.mark.parametrize("how", [Validation(batch=4), Validation(grad=True), Validation(keeps=9)], ids=str)
def test_what_costs_more(how: Validation) -> None:
    assert validated(MASKS, how).allocated.expected > validated(MASKS, Validation()).allocated.expected


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_every_kind_of_model_validates(name: str) -> None:
    answer = validated(name, Validation())
    assert answer.phase == "validation"
    assert answer.kinds["optimizer"] > 0 and answer.kinds["gradient"] > 0  # what training has left


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Detectron2 was written for older PyTorch, NumPy and Pillow
@pytest.mark.parametrize("name", [MASKS, OTHERS[0], OTHERS[2], OTHERS[3]])
@pytest.mark.parametrize("size", [(480, 640), (1500, 2000)])
def test_a_blueprint_validates_as_detectron2_does(
    name: str, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """RetinaNet is left out: untrained, it is sure of every anchor, which takes more than what a trained one does."""
    pytest.importorskip("detectron2.modeling", reason="unproven by CI: needs a built Detectron2, see CONTRIBUTING.md")
    from detectron2.layers import mask_ops

    drawn: list[int] = []
    paste = mask_ops.paste_masks_in_image

    def noted(masks: Any, *others: Any, **options: Any) -> Any:
        drawn.append(len(masks))
        return paste(masks, *others, **options)

    monkeypatch.setattr(mask_ops, "paste_masks_in_image", noted)
    theirs = validated(name, Validation(), size, real=True).allocated.expected
    assert drawn and 0 < drawn[0] <= 100
    # Made-up boxes without area are dropped, of which a trained network has none: both draw as many masks.
    most = validated(name, Validation(), size).allocated.expected
    monkeypatch.setattr(inference, "find_worst_count", lambda count, size: drawn[0])
    ours = validated(name, Validation(), size).allocated.expected
    assert ours == pytest.approx(theirs, rel=0.03)
    assert most >= max(ours, 0.99 * theirs)


@pytest.mark.thorough
def test_check_names_the_largest_image_and_says_which_part_decides(tmp_path: Path) -> None:
    images = [{"id": 1, "file_name": "small.jpg", "height": 480, "width": 640}]
    images += [{"id": 2, "file_name": "poster.jpg", "height": 3000, "width": 4000}]
    objects: list[dict[str, Any]] = [
        {"id": number, "image_id": number, "category_id": 1, "bbox": [10, 10, 50, 50], "iscrowd": 0}
        for number in (1, 2)
    ]
    path = tmp_path / "annotations.json"
    path.write_text(json.dumps({"images": images, "annotations": objects, "categories": [{"id": 1, "name": "a"}]}))
    answer = oomproof.check(MASKS, "RTX 3060", data=path, validate=True, gpus=1, batch=1)
    assert answer.validation is not None and answer.decides == "validation"
    assert any("poster.jpg (3000x4000)" in note for note in answer.validation.notes)
    assert answer.validation.allocated.expected > 100 * 3000 * 4000
    assert answer.epoch is not None
    assert "annotations" in answer.host_parts  # as Detectron2 packs them
