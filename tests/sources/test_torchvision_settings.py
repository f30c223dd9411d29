"""Settings of torchvision's models: each reaches the model, leaves the rest alone, and its default changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torchvision.models import get_model
from torchvision.models.detection.image_list import ImageList
from torchvision.ops import FrozenBatchNorm2d

from oomproof import check
from oomproof.changes.settings_file import read_settings
from oomproof.errors import InputError
from oomproof.sources.settings import resolve
from oomproof.sources.torchvision.code import model_code
from oomproof.sources.torchvision.job import model_names, open_torchvision
from oomproof.sources.torchvision.models import _without_loading
from oomproof.trace.request import TraceRequest
from oomproof.trace.torch.tracer import Tracer
from thorough import thorough_but

RESNETS = ("fasterrcnn_resnet50_fpn", "maskrcnn_resnet50_fpn", "keypointrcnn_resnet50_fpn")
PYRAMIDS = (*RESNETS, "retinanet_resnet50_fpn", "fcos_resnet50_fpn")
DETECTORS = [name for name, task in model_names().items() if task == "detection"]


def names_of(model: str) -> set[str]:
    return {setting.name for setting in open_torchvision(model).settings}


def built(name: str, **given: Any) -> nn.Module:
    job = open_torchvision(name)
    with Tracer():
        return job.with_settings(resolve(job, given)).model()


def shapes(model: nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(value.shape) for name, value in model.state_dict().items()}


def test_only_models_that_have_a_setting_show_it() -> None:
    having = {name: {model for model in DETECTORS if name in names_of(model)} for name in (
        "roi_samples", "proposals", "anchor_scale", "backbone", "width_mult"
    )}  # fmt: skip
    rcnns = {model for model in DETECTORS if "rcnn" in model}
    assert having["roi_samples"] == having["proposals"] == rcnns
    assert having["anchor_scale"] == rcnns | {model for model in DETECTORS if model.startswith("retinanet")}
    assert having["backbone"] == set(PYRAMIDS)
    assert having["width_mult"] == set()
    assert "width_mult" in names_of("mobilenet_v2") & names_of("mobilenet_v3_small")
    assert "width_mult" not in names_of("resnet50") | names_of("shufflenet_v2_x1_0")


@pytest.mark.parametrize(
    "name",
    thorough_but(
        ["maskrcnn_resnet50_fpn", "fcos_resnet50_fpn", "ssd300_vgg16", "mobilenet_v2", "vit_b_16"],
        [*DETECTORS, "mobilenet_v2", "deeplabv3_resnet50", "vit_b_16"],
    ),
)
def test_defaults_build_what_the_builder_builds(name: str) -> None:
    arguments = {"weights_backbone": None} if model_names()[name] != "classification" else {}
    auxiliary = {"aux_loss": True} if name == "deeplabv3_resnet50" else {}
    with Tracer():
        expected = get_model(name, weights=None, **arguments, **auxiliary)
    model = built(name, weights="none")
    assert shapes(model) == shapes(expected)
    if "rcnn" in name:
        assert model.roi_heads.fg_bg_sampler.batch_size_per_image == 512
        assert (model.rpn._pre_nms_top_n, model.rpn._post_nms_top_n) == (
            expected.rpn._pre_nms_top_n,
            expected.rpn._post_nms_top_n,
        )
        assert model.rpn.anchor_generator.sizes == expected.rpn.anchor_generator.sizes


@pytest.mark.parametrize("name", ["maskrcnn_resnet50_fpn", "fasterrcnn_mobilenet_v3_large_320_fpn"])
def test_samples_and_proposals(name: str) -> None:
    model = built(name, roi_samples=64, proposals=250)
    assert model.roi_heads.fg_bg_sampler.batch_size_per_image == 64
    assert (model.rpn._pre_nms_top_n["training"], model.rpn._post_nms_top_n["training"]) == (2000, 250)
    many = built(name, proposals=3000)
    assert (many.rpn._pre_nms_top_n["training"], many.rpn._post_nms_top_n["training"]) == (3000, 3000)


@pytest.mark.parametrize("setting", ["roi_samples", "proposals", "anchor_scale"])
def test_counts_and_factors_must_be_positive(setting: str) -> None:
    with pytest.raises(InputError, match=f"{setting} must be .*; got 0"):
        built("fasterrcnn_resnet50_fpn", **{setting: 0})


def test_width_must_be_positive() -> None:
    with pytest.raises(InputError, match=r"width_mult must be above 0, such as 0.75; got -1.0"):
        built("mobilenet_v2", width_mult=-1)


@pytest.mark.parametrize("name", ["fasterrcnn_resnet50_fpn_v2", "retinanet_resnet50_fpn_v2"])
def test_anchors_are_scaled_and_as_many_as_before(name: str) -> None:
    def anchors(scale: float) -> torch.Tensor:
        job = open_torchvision(name)
        model = job.with_settings(resolve(job, {"weights": "none", "anchor_scale": scale})).model()  # with real values
        generator = model.rpn.anchor_generator if "rcnn" in name else model.anchor_generator
        levels = [torch.rand(1, 8, side, side) for side in (64, 32, 16, 8, 4)]
        return generator(ImageList(torch.rand(1, 3, 256, 256), [(256, 256)]), levels)[0]

    plain, half = anchors(1.0), anchors(0.5)
    assert plain.shape == half.shape
    wide, narrow = ((boxes[:, 2] - boxes[:, 0]) for boxes in (plain, half))
    assert torch.allclose(narrow, wide / 2, atol=1.5)  # torchvision rounds to whole pixels


@pytest.mark.parametrize("name", PYRAMIDS)
@pytest.mark.parametrize("backbone", ["resnet34", pytest.param("resnet18", marks=pytest.mark.thorough)])
def test_another_backbone_has_the_same_form(name: str, backbone: str) -> None:
    model, usual = built(name, backbone=backbone), built(name)
    blocks = [sum(1 for _ in model.backbone.body[f"layer{stage}"].children()) for stage in (1, 2, 3, 4)]
    assert blocks == ([3, 4, 6, 3] if backbone == "resnet34" else [2, 2, 2, 2])
    assert model.backbone.out_channels == usual.backbone.out_channels == 256
    assert list(model.backbone.body.return_layers) == list(usual.backbone.body.return_layers)
    assert type(model.backbone.fpn.extra_blocks) is type(usual.backbone.fpn.extra_blocks)
    heads = {key: shape for key, shape in shapes(model).items() if not key.startswith("backbone.body")}
    inner = {key for key in heads if "inner_blocks" in key and key.endswith("weight")}
    assert {key: heads[key] for key in heads.keys() - inner} == {
        key: shape for key, shape in shapes(usual).items() if not key.startswith("backbone.body") and key not in inner
    }
    assert any(isinstance(module, FrozenBatchNorm2d) for module in model.backbone.modules())


@pytest.mark.parametrize(
    ("given", "trained"),
    [
        ({}, {"layer2", "layer3", "layer4"}),
        ({"trainable_layers": 1}, {"layer4"}),
        ({"trainable_layers": 0}, set()),
        ({"weights": "none"}, {"conv1", "bn1", "layer1", "layer2", "layer3", "layer4"}),
    ],
)
def test_another_backbone_is_frozen_as_the_usual_one(given: dict[str, Any], trained: set[str]) -> None:
    def stages(model: nn.Module) -> set[str]:
        return {name.split(".")[0] for name, value in model.backbone.body.named_parameters() if value.requires_grad}

    assert stages(built("fasterrcnn_resnet50_fpn", backbone="resnet18", **given)) == trained
    assert stages(built("fasterrcnn_resnet50_fpn", **given)) == trained


def test_weights_of_the_whole_model_belong_to_its_own_backbone() -> None:
    with pytest.raises(InputError, match="set weights=backbone"):
        built("fasterrcnn_resnet50_fpn", backbone="resnet18", weights="default")


@pytest.mark.parametrize("name", ["mobilenet_v2", "mobilenet_v3_large", "mobilenet_v3_small"])
def test_width_makes_a_narrower_network(name: str) -> None:
    narrow, usual = (sum(p.numel() for p in built(name, width_mult=width).parameters()) for width in (0.5, 1.0))
    assert narrow < 0.75 * usual


def test_another_model_stands_in() -> None:
    assert type(built("fasterrcnn_resnet50_fpn", model="fcos_resnet50_fpn", roi_samples=64)).__name__ == "FCOS"
    assert built("resnet50", model="resnet18", classes=7).fc.out_features == 7
    assert built("deeplabv3_resnet50", model="lraspp_mobilenet_v3_large") is not None
    assert shapes(built("deeplabv3_resnet50", model="fcn_resnet50")) == shapes(built("fcn_resnet50"))


def test_a_model_with_other_outputs_is_refused() -> None:
    with pytest.raises(InputError, match="model must be one of"):
        built("maskrcnn_resnet50_fpn", model="fasterrcnn_resnet50_fpn")
    with pytest.raises(
        InputError, match=r"gives classification, as resnet50 does; got 'resnet5'; did you mean .*resnet50"
    ):
        built("resnet50", model="resnet5")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("maskrcnn_resnet50_fpn", {"backbone": "resnet18", "anchor_scale": 0.5, "roi_samples": 64, "proposals": 250}),
        ("retinanet_resnet50_fpn", {"backbone": "resnet34", "anchor_scale": 0.5}),
        ("fcos_resnet50_fpn", {"backbone": "resnet18"}),
        ("fasterrcnn_resnet50_fpn", {"model": "ssdlite320_mobilenet_v3_large"}),
    ],
)
def test_lighter_settings_trace_and_hold_less(name: str, given: dict[str, Any]) -> None:
    job = open_torchvision(name)
    size = {"batch": 2, "image_size": (192, 256), "boxes": 4}  # SSDLite cannot train on one image
    usual, light = (job.trace(TraceRequest(resolve(job, size | more))).peak().bytes for more in ({}, given))
    assert light < usual


@pytest.mark.parametrize(
    ("name", "given"),
    [
        (
            "maskrcnn_resnet50_fpn",
            {"roi_samples": 64, "proposals": 3000, "anchor_scale": 0.5, "image_size": (320, 480)},
        ),
        ("fasterrcnn_resnet50_fpn", {"backbone": "resnet18", "weights": "none", "classes": 5}),
        ("retinanet_resnet50_fpn", {"backbone": "resnet34", "trainable_layers": 2, "anchor_scale": 0.75}),
        ("fcos_resnet50_fpn", {"backbone": "resnet34"}),
        ("fasterrcnn_resnet50_fpn", {"weights": "none"}),
        ("fasterrcnn_resnet50_fpn", {"model": "ssd300_vgg16"}),
        ("mobilenet_v3_large", {"width_mult": 0.5}),
        ("deeplabv3_resnet50", {}),
        ("vit_b_16", {"image_size": (96, 96)}),
    ],
)
def test_the_code_to_paste_builds_the_same_model(name: str, given: dict[str, Any]) -> None:
    job = open_torchvision(name)
    settings = resolve(job, given)
    code = model_code(settings["model"], job.task, settings)
    pasted: dict[str, Any] = {}
    with Tracer(), _without_loading():
        exec("\n".join(code), pasted)
    expected, model = built(name, **given), pasted["model"]
    assert shapes(model) == shapes(expected)
    assert [p.requires_grad for p in model.parameters()] == [p.requires_grad for p in expected.parameters()]
    assert callable(pasted["loss"])
    if "roi_samples" in given:
        assert model.roi_heads.fg_bg_sampler.batch_size_per_image == given["roi_samples"]
        assert model.rpn._post_nms_top_n["training"] == model.rpn._pre_nms_top_n["training"] == given["proposals"]
        assert model.transform.min_size == (320,)
    if "anchor_scale" in given:
        generator = model.rpn.anchor_generator if "rcnn" in name else model.anchor_generator
        assert generator.sizes[0][0] == 32 * given["anchor_scale"]


@pytest.mark.slow
def test_a_narrower_network_is_forecast() -> None:
    """Cut out of the wide one by a tracer inside the tracer, whose tensors C++ must not take for a GPU's."""
    wide, narrow = (check("torchvision:resnet18", on="8GiB", batch=16, width=width) for width in (1.0, 0.5))
    assert 0.3 * wide.kinds["parameter"] > narrow.kinds["parameter"] > 0.2 * wide.kinds["parameter"]
    assert narrow.allocated.expected < 0.65 * wide.allocated.expected


@pytest.mark.slow
def test_what_is_written_trains(tmp_path: Path) -> None:
    """The text that fit --write prints, pasted and run for a step."""
    job = open_torchvision("fasterrcnn_resnet50_fpn")
    light = {"weights": "none", "backbone": "resnet18", "roi_samples": 16, "anchor_scale": 0.25, "classes": 3}
    fitted = {"batch": 1, "accumulate": 2, "checkpoint": "backbone", "image_size": (64, 96)}
    settings = resolve(job, light | fitted)
    assert job.place == Path("fasterrcnn_resnet50_fpn.oomproof.json")
    file = tmp_path / "mine.json"
    text = job.write(settings, file)
    assert read_settings(file)["image_size"] == (64, 96)
    said, _, code = text.partition("\n")
    assert said == f"wrote {file}. In your training:"
    assert "all images of an update: the step takes at most 1 at a time" in code
    code = code.replace("optimizer = ...", "optimizer = torch.optim.SGD(model.parameters(), lr=0.01)")
    target = {"boxes": torch.tensor([[8.0, 8.0, 40.0, 40.0]]), "labels": torch.tensor([1])}
    batch = ([torch.rand(3, 64, 96) for _ in range(2)], [target, target])
    pasted: dict[str, Any] = {"loader": [batch]}
    exec(code, pasted)
    assert all(value.grad is not None for value in pasted["model"].backbone.body.parameters())


def test_written_where_it_cannot_be(tmp_path: Path) -> None:
    job = open_torchvision("resnet18")
    with pytest.raises(InputError, match="cannot be written"):
        job.write(resolve(job, {}), tmp_path)
