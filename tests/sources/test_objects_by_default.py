"""How crowded a made-up image is: one figure for every source that has boxes, and said wherever it is used."""

from __future__ import annotations

import pytest

from oomproof.memory.batch_spec import MOST_OBJECTS, make_up, note_on_objects
from oomproof.sources import open_job
from oomproof.sources.settings import resolve
from oomproof.trace.request import TraceRequest


@pytest.mark.parametrize(
    "name",
    ["torchvision:ssd300_vgg16", "COCO-Detection/retinanet_R_50_FPN_1x.yaml", "keras_hub:retinanet_resnet50_fpn_coco"],
)
def test_all_sources_take_the_same(name: str) -> None:
    job = open_job(name)
    (boxes,) = (setting for setting in job.settings if setting.name == "boxes")
    assert boxes.default == MOST_OBJECTS
    assert str(MOST_OBJECTS) in boxes.help


def test_it_is_told_until_the_user_says_otherwise() -> None:
    assert "--set boxes=N" in note_on_objects(MOST_OBJECTS)[0]
    assert not note_on_objects(20)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["torchvision:ssdlite320_mobilenet_v3_large", pytest.param("ultralytics:yolo11n", marks=pytest.mark.thorough)],
)
def test_it_is_not_told_of_data_that_are_as_crowded(name: str) -> None:
    """COCO's own annotations have that many."""
    if name.startswith("ultralytics"):
        pytest.importorskip("ultralytics")
    job = open_job(name)
    settings = resolve(job, {"batch": 2, "image_size": (320, 320)})
    told = note_on_objects(MOST_OBJECTS)[0]
    assert told in job.trace(TraceRequest(settings)).about.notes
    assert told not in job.trace(TraceRequest(settings, batch=make_up(2, (320, 320), MOST_OBJECTS))).about.notes
