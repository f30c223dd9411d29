"""torchvision's models by name: all are found, all trace, and they are frozen as torchvision freezes them."""

from __future__ import annotations

from typing import Any

import pytest
import torchvision
from torch import nn
from torchvision.models.detection import FasterRCNN
from torchvision.models.detection.backbone_utils import _resnet_fpn_extractor
from torchvision.ops import FrozenBatchNorm2d

from oomproof.errors import InputError, JobError
from oomproof.memory.timeline import Timeline
from oomproof.sources import open_job
from oomproof.sources.settings import resolve
from oomproof.sources.torchvision.job import model_names, open_torchvision
from oomproof.trace.request import TraceRequest
from oomproof.trace.torch.tracer import Tracer
from thorough import thorough_but

NAMES = model_names()
CLASSIFIERS = (
    "alexnet", "convnext_tiny", "densenet121", "efficientnet_b0", "googlenet", "inception_v3", "mnasnet0_5",
    "mobilenet_v3_small", "regnet_y_400mf", "shufflenet_v2_x0_5", "swin_t", "vit_b_32",
)  # fmt: skip
FIXED_SIZE = ("vit_b_32", "inception_v3")


def traced(name: str, **given: Any) -> Timeline:
    job = open_torchvision(name)
    return job.trace(TraceRequest(resolve(job, given)))


def built(name: str, **given: Any) -> nn.Module:
    job = open_torchvision(name)
    with Tracer():
        return job.with_settings(resolve(job, given)).model()


def trainable(model: nn.Module) -> dict[str, bool]:
    return {name: parameter.requires_grad for name, parameter in model.named_parameters()}


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, task in NAMES.items() if task != "classification"])
def test_every_detector_and_segmenter_traces(name: str) -> None:
    boxes = {"boxes": 3} if NAMES[name] == "detection" else {}
    size = (272, 288) if name == "ssd300_vgg16" else (96, 128)  # which is too small for its last layers
    timeline = traced(name, batch=2, image_size=size, **boxes)
    weights = sum(p.nbytes for p in built(name).parameters())
    assert timeline.by_kind(timeline.ticks - 1)["parameter"] == weights
    assert {"forward", "backward"} <= set(timeline.by_phase())


@pytest.mark.slow
@pytest.mark.parametrize("name", thorough_but(["googlenet", "mobilenet_v3_small", "swin_t", "vit_b_32"], CLASSIFIERS))
def test_a_spread_of_classifiers_traces(name: str) -> None:
    size = {} if name in FIXED_SIZE else {"image_size": (64, 64)}
    timeline = traced(name, batch=2, classes=7, **size)
    assert timeline.by_kind(timeline.ticks - 1)["parameter"] == sum(
        p.nbytes for p in built(name, classes=7).parameters()
    )


def test_every_name_resolves() -> None:
    listed = torchvision.models.list_models()
    wanted = {name for name in listed if not name.startswith("quantized_")} - set(
        torchvision.models.list_models(torchvision.models.video)
    ) - set(torchvision.models.list_models(torchvision.models.optical_flow))  # fmt: skip
    assert set(NAMES) == wanted
    assert len(NAMES) > 90
    for name in NAMES:
        job = open_job(f"torchvision:{name}")
        assert job.name == f"torchvision:{name}"
        assert resolve(job, {})["batch"] > 0


@pytest.mark.parametrize(
    ("name", "near"),
    [("resnet5", "resnet50"), ("maskrcnn_resnet50", "maskrcnn_resnet50_fpn"), ("ViT_b_16", "vit_b_16")],
)
def test_unknown_names_suggest_near_ones(name: str, near: str) -> None:
    with pytest.raises(InputError, match=rf"no model '{name}'; did you mean .*\b{near}\b"):
        open_torchvision(name)


def test_a_name_like_nothing() -> None:
    with pytest.raises(InputError, match=r"no model 'qqqq' \("):
        open_torchvision("qqqq")


def faster_rcnn(layers: int, norm: type[nn.Module]) -> nn.Module:
    """As torchvision's builder makes it, put together by hand: nothing is downloaded."""
    body = torchvision.models.resnet50(weights=None, norm_layer=norm)
    return FasterRCNN(_resnet_fpn_extractor(body, layers), num_classes=91)


@pytest.mark.parametrize(
    ("given", "layers", "norm"),
    [
        ({"weights": "none"}, 5, nn.BatchNorm2d),
        ({"weights": "backbone"}, 3, FrozenBatchNorm2d),
        ({"weights": "default"}, 3, FrozenBatchNorm2d),
        ({"weights": "backbone", "trainable_layers": 0}, 0, FrozenBatchNorm2d),
        ({"weights": "backbone", "trainable_layers": 5}, 5, FrozenBatchNorm2d),
        ({"weights": "default", "trainable_layers": 1}, 1, FrozenBatchNorm2d),
    ],
    ids=str,
)
def test_weights_freeze_as_torchvision_does(given: dict[str, Any], layers: int, norm: type[nn.Module]) -> None:
    with Tracer():
        expected = faster_rcnn(layers, norm)
    model = built("fasterrcnn_resnet50_fpn", **given)
    assert trainable(model) == trainable(expected)
    assert [type(m) for m in model.modules()] == [type(m) for m in expected.modules()]


@pytest.mark.parametrize("name", ["ssd300_vgg16", "retinanet_resnet50_fpn_v2", "ssdlite320_mobilenet_v3_large"])
def test_without_weights_everything_is_trained(name: str) -> None:
    assert all(trainable(built(name, weights="none")).values())
    frozen = [
        name for name, trained in trainable(built(name, weights="backbone", trainable_layers=0)).items() if not trained
    ]
    assert frozen and all(name.startswith("backbone") for name in frozen)


def test_layers_without_weights_are_refused() -> None:
    with pytest.raises(InputError, match="trainable_layers=2 has no effect with weights=none"):
        built("fasterrcnn_resnet50_fpn", weights="none", trainable_layers=2)


def test_too_many_layers() -> None:
    with pytest.raises(JobError, match=r"ValueError: Trainable backbone layers should be in the range \[0,5\]"):
        traced("fasterrcnn_resnet50_fpn", trainable_layers=9)


def test_default_weights_want_their_own_classes() -> None:
    assert trainable(built("keypointrcnn_resnet50_fpn", weights="default"))
    with pytest.raises(JobError, match="'num_classes' expected value 91 but got 5"):
        traced("fasterrcnn_resnet50_fpn", weights="default", classes=5)


def test_nothing_stays_patched() -> None:
    load, states = nn.Module.load_state_dict, torchvision.models.WeightsEnum.get_state_dict
    built("fasterrcnn_resnet50_fpn")
    assert (nn.Module.load_state_dict, torchvision.models.WeightsEnum.get_state_dict) == (load, states)


def test_classes_and_sizes_reach_the_model() -> None:
    assert built("resnet18", classes=7).fc.out_features == 7
    detector = built("maskrcnn_resnet50_fpn", image_size=(320, 480), classes=4)
    assert (detector.transform.min_size, detector.transform.max_size) == ((320,), 480)
    assert detector.roi_heads.box_predictor.cls_score.out_features == 4


def test_auxiliary_classifiers() -> None:
    assert built("fcn_resnet50").aux_classifier is not None
    assert built("fcn_resnet50", aux_loss=False).aux_classifier is None
    assert "aux_loss" not in resolve(open_torchvision("lraspp_mobilenet_v3_large"), {})


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["maskrcnn_resnet50_fpn", "keypointrcnn_resnet50_fpn", "fcos_resnet50_fpn", "ssd300_vgg16"]
)
def test_images_without_objects(name: str) -> None:
    size = {} if name == "ssd300_vgg16" else {"image_size": (64, 96)}
    timeline = traced(name, batch=2, boxes=0, **size)
    assert {"forward", "backward"} <= set(timeline.by_phase())
