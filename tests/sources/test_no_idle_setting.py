"""No setting is taken and then ignored: each changes the step, or is refused, or a note says that it does nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from oomproof.errors import InputError
from oomproof.memory.timeline import Timeline
from oomproof.sources import open_job
from oomproof.sources.settings import resolve
from oomproof.sources.torchvision.job import model_names, open_torchvision
from oomproof.trace.request import TraceRequest
from thorough import thorough_but

TASKS = model_names()
CLASSIFIERS = (
    "alexnet", "convnext_tiny", "densenet121", "efficientnet_b0", "googlenet", "mnasnet0_5", "mobilenet_v2",
    "regnet_y_400mf", "resnet18", "shufflenet_v2_x0_5", "squeezenet1_1", "swin_t", "vgg11", "vit_b_32",
)  # fmt: skip
MODELS = [name for name, task in TASKS.items() if task != "classification"] + list(CLASSIFIERS)
QUICK = ["ssd300_vgg16", "retinanet_resnet50_fpn", "lraspp_mobilenet_v3_large", "mobilenet_v2"]
SMALL = {"batch": 2, "image_size": (96, 128), "classes": 5}
SIZES: Mapping[str, Mapping[str, Any]] = {
    "ssd300_vgg16": {"image_size": (300, 300)},  # about its least
    "alexnet": {"image_size": (128, 128)},
    "vit_b_32": {"image_size": (128, 128)},
}
CHANGES: Mapping[str, Any] = {"batch": 3, "image_size": (384, 384), "classes": 9, "boxes": 11}
ZOO = ["COCO-InstanceSegmentation/mask_rcnn_R_50_FPN_3x.yaml", "COCO-Detection/retinanet_R_50_FPN_3x.yaml"]


def summary(timeline: Timeline) -> tuple[Any, ...]:
    """What a forecast is made of."""
    return timeline.peak().bytes, timeline.ticks, timeline.by_kind(timeline.ticks - 1), timeline.by_phase()


def assert_none_is_idle(name: str, usual: Mapping[str, Any], changes: Mapping[str, Any]) -> None:
    job = open_job(name)

    def trace(given: Mapping[str, Any]) -> Timeline:
        return job.trace(TraceRequest(resolve(job, given)))

    before = trace(usual)
    for setting, value in changes.items():
        try:
            after = trace({**usual, setting: value})
        except InputError:
            continue
        said = [note for note in after.about.notes if note not in before.about.notes]
        told = any(setting in note and "does nothing" in note for note in said)
        assert told or summary(after) != summary(before), f"{name}: {setting}={value} changes nothing"


@pytest.mark.slow
@pytest.mark.parametrize("name", thorough_but(QUICK, MODELS))
def test_every_kind_of_torchvision_model(name: str) -> None:
    detector = TASKS[name] == "detection"
    usual = {**SMALL, **SIZES.get(name, {}), **({"boxes": 4} if detector else {})}
    changes = {setting: value for setting, value in CHANGES.items() if detector or setting != "boxes"}
    assert_none_is_idle(f"torchvision:{name}", usual, changes)


@pytest.mark.slow
@pytest.mark.parametrize("name", thorough_but(ZOO[1:], ZOO))
def test_the_zoo_of_detectron2(name: str) -> None:
    usual = {"real": False, "SOLVER.IMS_PER_BATCH": 1, "image_size": (128, 192), "boxes": 4}
    classes = "MODEL.RETINANET.NUM_CLASSES" if "retinanet" in name else "MODEL.ROI_HEADS.NUM_CLASSES"
    changes = {"batch": 2, "image_size": (256, 256), "boxes": 11, classes: 9}
    assert_none_is_idle(name, usual, changes)


@pytest.mark.slow
@pytest.mark.thorough
def test_an_application_of_keras() -> None:
    pytest.importorskip("tensorflow", reason="Keras jobs need TensorFlow: pip install 'oomproof[tensorflow]'")
    usual = {"batch": 2, "image_size": (64, 64), "classes": 5, "jit_compile": False}
    assert_none_is_idle("keras:MobileNetV2", usual, {"batch": 3, "image_size": (96, 96), "classes": 9})


@pytest.mark.slow
def test_what_another_model_does_not_have_is_said() -> None:
    job = open_torchvision("fasterrcnn_resnet50_fpn")
    given = {"model": "ssdlite320_mobilenet_v3_large", "batch": 2, "roi_samples": 64, "boxes": 9}
    notes = job.trace(TraceRequest(resolve(job, given))).about.notes
    assert notes == ("roi_samples=64 does nothing here: ssdlite320_mobilenet_v3_large has no such setting",)
