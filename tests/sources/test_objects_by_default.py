"""How crowded a made-up image is: one figure for every source that has boxes, and said wherever it is used."""

from __future__ import annotations

import pytest

from oomproof.memory.batch_spec import MOST_OBJECTS, note_on_objects
from oomproof.sources import open_job


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
