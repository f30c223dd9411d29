"""The knobs of torchvision jobs: from the present value on, ever less, and every position can be set and built."""

from __future__ import annotations

from typing import Any

import pytest
from torchvision.models import get_model_weights

from oomproof.sources.job import Knob
from oomproof.sources.settings import resolve
from oomproof.sources.torchvision.job import model_names, open_torchvision
from oomproof.sources.torchvision.knobs import knobs
from oomproof.trace.torch.tracer import Tracer
from thorough import thorough_but

NAMES = model_names()


def of(name: str, **given: Any) -> dict[str, Knob]:
    job = open_torchvision(name)
    settings = resolve(job, given)
    return {knob.name: knob for knob in knobs(settings["model"], job.task, settings)}


def values(knob: Knob) -> list[Any]:
    return [option.value for option in knob.options]


@pytest.mark.parametrize("name", NAMES)
def test_every_knob_starts_at_the_present_and_gets_worse(name: str) -> None:
    job = open_torchvision(name)
    settings = resolve(job, {})
    for knob in knobs(name, job.task, settings):
        present, *others = knob.options
        assert others, knob.name
        assert knob.promise == "different" and knob.why
        assert present.harm == 0
        assert {key: settings[key] for key in present.settings} == present.settings
        harms = [option.harm for option in others]
        assert harms[0] > 0 and harms == sorted(harms) and harms[-1] <= 1
        assert len(set(values(knob))) == len(knob.options) <= 8
        for option in others:
            assert resolve(job, option.settings)  # the job has these settings, and these values are allowed


BUILDABLE = [
    "maskrcnn_resnet50_fpn", "fasterrcnn_resnet50_fpn_v2", "retinanet_resnet50_fpn", "fcos_resnet50_fpn",
    "ssd300_vgg16", "deeplabv3_resnet101", "resnet50", "vit_l_16", "mobilenet_v2",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", thorough_but(["retinanet_resnet50_fpn", "ssd300_vgg16", "mobilenet_v2"], BUILDABLE))
def test_every_position_builds(name: str) -> None:
    job = open_torchvision(name)
    with Tracer():
        for knob in of(name).values():
            for option in knob.options[1:]:
                assert job.with_settings(resolve(job, option.settings)).model() is not None, (knob.name, option)


def test_images_keep_their_aspect_and_anchors_follow() -> None:
    knob = of("maskrcnn_resnet50_fpn", anchor_scale=0.5)["image_size"]
    assert values(knob)[0] == (800, 1333)
    assert min(values(knob)[-1]) == 320
    for option in knob.options[1:]:
        height, width = option.value
        assert height % 32 == width % 32 == 0
        assert width / height == pytest.approx(1333 / 800, rel=0.03)
        assert option.settings["anchor_scale"] == pytest.approx(0.5 * height / 800, abs=1e-3)
        assert "anchors" in option.note


def test_models_with_other_sizes() -> None:
    assert "image_size" not in of("ssd300_vgg16")
    assert "image_size" not in of("maxvit_t")
    assert all(side % 14 == 0 for size in values(of("vit_h_14")["image_size"]) for side in size)
    assert all("anchor_scale" not in option.settings for option in of("fcos_resnet50_fpn")["image_size"].options)


def test_counts_start_below_the_present() -> None:
    assert values(of("fasterrcnn_resnet50_fpn")["roi_samples"]) == [512, 256, 128, 64]
    assert values(of("fasterrcnn_resnet50_fpn", roi_samples=128)["roi_samples"]) == [128, 64]
    assert "roi_samples" not in of("fasterrcnn_resnet50_fpn", roi_samples=64)
    assert values(of("fasterrcnn_resnet50_fpn")["proposals"]) == [2000, 1000, 500, 250]
    assert values(of("mobilenet_v2", width_mult=0.5)["width_mult"]) == [0.5, 0.35]


@pytest.mark.parametrize(
    ("name", "layers"), [("maskrcnn_resnet50_fpn", 3), ("ssd300_vgg16", 4), ("ssdlite320_mobilenet_v3_large", 6)]
)
def test_layers_are_frozen_from_torchvisions_default_on(name: str, layers: int) -> None:
    knob = of(name)["trainable_layers"]
    assert values(knob) == list(range(layers, -1, -1))
    assert knob.options[0].settings == {"trainable_layers": -1}
    job = open_torchvision(name)
    with Tracer():
        trained = [
            [p.requires_grad for p in job.with_settings(resolve(job, {"trainable_layers": each})).model().parameters()]
            for each in (-1, layers)
        ]
    assert trained[0] == trained[1]


def test_nothing_is_frozen_without_weights() -> None:
    assert "trainable_layers" not in of("maskrcnn_resnet50_fpn", weights="none")


def test_backbones() -> None:
    knob = of("maskrcnn_resnet50_fpn")["backbone"]
    assert values(knob) == ["resnet50", "resnet34", "resnet18"]
    assert knob.options[1].note == "ImageNet acc@1 of the backbone 76.1 -> 73.3; no AP is published"
    assert values(of("maskrcnn_resnet50_fpn", backbone="resnet34")["backbone"]) == ["resnet34", "resnet18"]
    assert "backbone" not in of("maskrcnn_resnet50_fpn_v2")
    whole = of("maskrcnn_resnet50_fpn", weights="default")["backbone"]
    assert whole.options[1].settings == {"backbone": "resnet34", "weights": "backbone"}


def test_lighter_models_give_the_same_outputs_with_published_figures() -> None:
    assert values(of("maskrcnn_resnet50_fpn_v2")["model"]) == ["maskrcnn_resnet50_fpn_v2", "maskrcnn_resnet50_fpn"]
    assert of("maskrcnn_resnet50_fpn_v2")["model"].options[1].note == "published mask AP 41.8 -> 34.6"
    assert "model" not in of("keypointrcnn_resnet50_fpn")
    boxes = of("fasterrcnn_resnet50_fpn_v2")["model"]
    figures = [get_model_weights(name).DEFAULT.meta["_metrics"]["COCO-val2017"]["box_map"] for name in values(boxes)]
    assert figures == sorted(figures, reverse=True) and len(figures) > 4
    published = f"published box AP {figures[0]:.1f} -> {figures[-1]:.1f}"
    assert boxes.options[-1].note == f"{published} for images of 320x320"


def test_models_published_with_larger_images_do_not_stand_in() -> None:
    """EfficientNetV2-S has 84.2 % at 384 pixels; it would not at 224."""
    assert "efficientnet_v2_s" not in values(of("resnet50")["model"])
    assert "efficientnet_v2_s" in values(of("resnet50", image_size=(384, 384))["model"])


def test_knobs_are_those_of_the_model_that_was_chosen() -> None:
    chosen = of("fasterrcnn_resnet50_fpn", model="fcos_resnet50_fpn")
    assert "roi_samples" not in chosen
    assert values(chosen["model"])[0] == "fcos_resnet50_fpn"
