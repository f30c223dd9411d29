"""Published models: torchvision's own figures, the best of each kind first."""

from __future__ import annotations

import pytest
from torchvision.models import get_model_weights

from oomproof.sources import open_job
from oomproof.sources.detectron2.config.config import read as config
from oomproof.sources.detectron2.zoo.configs import full_name, list_names
from oomproof.sources.torchvision.job import model_names
from oomproof.sources.zoo import list_published, zoo


def test_every_detector_and_segmenter_is_there() -> None:
    every = {f"torchvision:{name}" for name, task in model_names().items() if task != "classification"}
    found = [entry for entry in zoo() if not entry.job.endswith(".yaml")]
    assert {entry.job for entry in found} == every
    assert {entry.task for entry in zoo("segmentation")} == {"segmentation"}
    assert [entry.task for entry in found] == ["detection"] * 12 + ["segmentation"] * 6


def test_detectron2s_models_are_configs_that_it_publishes() -> None:
    found = {entry.job: entry for entry in zoo() if entry.job.endswith(".yaml")}
    assert len(found) == 21 and found.keys() <= set(list_names())
    mask = found["COCO-InstanceSegmentation/mask_rcnn_R_50_FPN_3x.yaml"]
    assert (mask.outputs, mask.metric, mask.value, mask.parameters) == ("masks", "mask AP", 37.2, 0)
    for entry in found.values():
        trained = config(entry.job).values
        kind = "keypoints" if trained["MODEL.KEYPOINT_ON"] else "masks" if trained["MODEL.MASK_ON"] else "boxes"
        assert (entry.outputs, entry.side) == (kind, max(trained["INPUT.MIN_SIZE_TRAIN"]))
        assert full_name(entry.job.rpartition("/")[2]) == entry.job  # as tables show it


@pytest.mark.parametrize(
    ("model", "metric", "value"),
    [
        ("fasterrcnn_resnet50_fpn", "box AP", 37.0),
        ("maskrcnn_resnet50_fpn_v2", "mask AP", 41.8),
        ("keypointrcnn_resnet50_fpn", "keypoint AP", 65.0),
        ("deeplabv3_resnet50", "mean IoU", 66.4),
    ],
)
def test_figures_as_published(model: str, metric: str, value: float) -> None:
    entry = next(entry for entry in zoo() if entry.model == model)
    assert (entry.metric, entry.value) == (metric, value)
    assert entry.parameters == get_model_weights(model).DEFAULT.meta["num_params"]
    assert entry.data.startswith("COCO-val2017")
    assert entry.source.startswith("https://github.com/pytorch/vision/")


def test_the_best_of_each_kind_first() -> None:
    kinds = [entry.outputs for entry in zoo()]
    assert list(dict.fromkeys(kinds)) == ["boxes", "masks", "keypoints", "segmentation"]
    for kind in set(kinds):
        figures = [entry.value for entry in zoo() if entry.outputs == kind]
        assert figures == sorted(figures, reverse=True)
    assert kinds == sorted(kinds, key=["boxes", "masks", "keypoints", "segmentation"].index)


def test_sources_name_their_own_model() -> None:
    """torchvision's metadata exchanges the recipes of two of them; of segmenters there are torchvision's only."""
    for entry in zoo("segmentation"):
        assert entry.source.endswith(f"#{entry.model}")


def test_sizes_are_those_the_metric_holds_for() -> None:
    sides = {entry.model: entry.side for entry in (*list_published("classification"), *zoo())}
    assert (sides["resnet50"], sides["efficientnet_v2_s"]) == (224, 384)
    assert (sides["maskrcnn_resnet50_fpn"], sides["ssd300_vgg16"]) == (800, 300)


def test_every_entry_is_a_job() -> None:
    for entry in zoo():
        assert open_job(entry.job).name == entry.job
