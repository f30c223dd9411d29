"""SSD and SSDlite resize whatever they are given: ``image_size`` is the size that they are built for."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torchvision.models import get_model

from oomproof.errors import CannotDo
from oomproof.sources.job import Knob
from oomproof.sources.settings import resolve
from oomproof.sources.torchvision.code import model_code
from oomproof.sources.torchvision.job import open_torchvision
from oomproof.sources.torchvision.knobs import knobs
from oomproof.trace.request import TraceRequest
from oomproof.trace.torch.tracer import Tracer

pytestmark = pytest.mark.thorough

SSD, LITE, FASTER = "ssd300_vgg16", "ssdlite320_mobilenet_v3_large", "fasterrcnn_resnet50_fpn"


def pasted(name: str, **given: Any) -> nn.Module:
    """What a user builds from the printed code, without pretrained weights."""
    job = open_torchvision(name)
    settings = resolve(job, {"weights": "none", **given})
    found: dict[str, Any] = {}
    exec("\n".join(model_code(settings["model"], job.task, settings)), found)
    return found["model"]  # type: ignore[no-any-return]


def traced(name: str, **given: Any) -> Any:
    job = open_torchvision(name)
    return job.trace(TraceRequest(resolve(job, {"batch": 2, **given})))


def knobs_of(name: str, **given: Any) -> dict[str, Knob]:
    job = open_torchvision(name)
    return {knob.name: knob for knob in knobs(name, job.task, resolve(job, given))}


@pytest.mark.slow
@pytest.mark.parametrize("name", [SSD, LITE])
def test_a_larger_input_takes_more(name: str) -> None:
    sizes = [(288, 288), (300, 300), (320, 320), (384, 512), (512, 512), (1024, 1024)]
    peaks = [traced(name, image_size=size).peak().bytes for size in sizes]
    assert peaks == sorted(set(peaks))
    assert peaks[-1] > 3 * peaks[0]


@pytest.mark.parametrize(("name", "usual"), [(SSD, 300), (LITE, 320)])
def test_the_usual_size_is_torchvisions_own_network(name: str, usual: int) -> None:
    with Tracer():
        ours, own = pasted(name, image_size=(usual, usual)), get_model(name, weights=None, weights_backbone=None)
    assert ours.transform.fixed_size == own.transform.fixed_size == (usual, usual)
    assert ours.anchor_generator.steps == own.anchor_generator.steps
    assert ours.anchor_generator.scales == own.anchor_generator.scales


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "size"), [(SSD, (512, 512)), (SSD, (300, 450)), (LITE, (512, 512)), (LITE, (200, 96))]
)
def test_every_place_of_a_larger_network_has_its_anchors(name: str, size: tuple[int, int]) -> None:
    height, width = size
    model = pasted(name, image_size=size).eval()
    with torch.no_grad():
        images, _ = model.transform([torch.rand(3, 333, 222)])
        assert images.tensors.shape[-2:] == size
        maps = list(model.backbone(images.tensors).values())
        anchors, heads = model.anchor_generator(images, maps)[0], model.head(maps)
    assert len(anchors) == heads["bbox_regression"].shape[1] == heads["cls_logits"].shape[1]
    counts = model.anchor_generator.num_anchors_per_location()
    levels = anchors.split([each.shape[-2] * each.shape[-1] * count for each, count in zip(maps, counts, strict=True)])
    for level, features in zip(levels, maps, strict=True):
        rows, columns = features.shape[-2:]
        across, down = (level[:, 0] + level[:, 2]) / 2, (level[:, 1] + level[:, 3]) / 2
        assert across.min().item() == pytest.approx(width / columns / 2, rel=1e-3)
        assert across.max().item() == pytest.approx(width - width / columns / 2, rel=1e-3)
        assert down.min().item() == pytest.approx(height / rows / 2, rel=1e-3)
        assert down.max().item() == pytest.approx(height - height / rows / 2, rel=1e-3)


@pytest.mark.slow
def test_an_input_that_leaves_nothing_to_the_last_layer_is_refused() -> None:
    with pytest.raises(CannotDo, match=r"cannot be built for images below 268x268: .*; image_size is 267x300"):
        traced(SSD, image_size=(267, 300))
    assert traced(SSD, image_size=(268, 268)).peak().bytes
    model = pasted(SSD)
    model.transform.fixed_size = (300, 267)  # as torchvision itself has it
    with torch.no_grad(), pytest.raises(RuntimeError, match="Kernel size can't be greater than actual input size"):
        model.eval()([torch.rand(3, 300, 300)])


@pytest.mark.slow
def test_the_report_says_what_was_built() -> None:
    assert not traced(LITE, boxes=20).about.notes
    (note,) = traced(LITE, image_size=(512, 384), boxes=20).about.notes
    assert note.startswith("built for images of 512x384: the layers that torchvision publishes for 320x320")


def test_another_model_comes_with_its_own_input() -> None:
    def size(name: str, **given: Any) -> tuple[int, int]:
        return resolve(open_torchvision(name), given)["image_size"]  # type: ignore[no-any-return]

    assert size(FASTER, model=SSD) == (300, 300)
    assert size(FASTER, model=SSD, image_size="512x512") == (512, 512)
    assert size(SSD, model=FASTER) == size(FASTER) == (800, 1333)
    assert size("resnet50", model="inception_v3") == (224, 224)


def test_a_plan_for_another_model_builds_it_as_published() -> None:
    options = {option.value: option.settings for option in knobs_of(FASTER, image_size=(640, 1056))["model"].options}
    assert options[LITE] == {"model": LITE, "image_size": (320, 320)}
    assert options["fcos_resnet50_fpn"] == {"model": "fcos_resnet50_fpn"}


def test_a_larger_input_may_shrink_to_the_published_one() -> None:
    assert "image_size" not in knobs_of(SSD)
    sizes = [option.value for option in knobs_of(SSD, image_size=(512, 512))["image_size"].options]
    assert sizes[0] == (512, 512) and len(sizes) > 2
    assert all(min(size) >= 300 for size in sizes)
