"""Models by name: each is traced in the framework's own way, and agrees with PyTorch's own CPU allocator within 1 %."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from real_cpu import second_step

from oomproof.api.check import forecast_step
from oomproof.changes.torch.training import training_from
from oomproof.errors import InputError
from oomproof.memory.cards.devices import find_device
from oomproof.sources import open_job
from oomproof.sources.settings import resolve
from oomproof.sources.torch.named import NamedJob
from oomproof.trace.torch.loop import Pieces
from oomproof.trace.torch.trace_step import trace_step
from thorough import thorough_but

MODELS: dict[str, dict[str, Any]] = {
    "timm:convnext_tiny": {"batch": 2, "image_size": (96, 96)},
    "timm:vit_tiny_patch16_224": {"batch": 4, "image_size": (96, 96)},
    "transformers:detr-resnet-50": {"batch": 1, "image_size": (128, 160), "update": "plain"},
    "transformers:rtdetr_r50vd": {"batch": 1, "image_size": (160, 160), "update": "plain"},
    "transformers:mask2former-swin-tiny": {"batch": 1, "image_size": (128, 128), "update": "plain"},
    "transformers:segformer-b0": {"batch": 2, "image_size": (128, 128), "update": "plain"},
    "transformers:convnext-tiny-224": {"batch": 2, "image_size": (96, 96), "update": "plain"},
    "transformers:vit-base-patch16-224": {"batch": 2, "image_size": (96, 96), "update": "plain"},
    "transformers:distilbert-base-uncased": {"batch": 2, "tokens": 64, "update": "plain"},
    "ultralytics:yolo11n": {"batch": 2, "image_size": (160, 160), "boxes": 5, "precision": "fp32", "accumulate": 1},
}
QUICK = ("timm:convnext_tiny", "transformers:segformer-b0")


def needs(library: str) -> None:
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # of the libraries' own
@pytest.mark.parametrize("name", thorough_but(QUICK, MODELS))
def test_second_step_as_the_real_allocator_has_it(name: str) -> None:
    needs(name.partition(":")[0])
    job = open_job(name)
    assert isinstance(job, NamedJob)
    settings = resolve(job, MODELS[name])
    made = job.make(settings)
    assert made.optimizer is not None
    pieces, training = Pieces(made.model, made.batch, made.loss, made.optimizer), training_from(settings)
    traced = forecast_step(trace_step(pieces, training, dialect="cpu"), find_device("64GiB"), settings)
    real = second_step(pieces, training).peak
    assert traced.allocated.expected == pytest.approx(real, rel=0.01), (traced.phase, traced.owner, traced.op)
    assert traced.allocated.low <= real <= traced.allocated.high


def test_ultralytics_defaults() -> None:
    needs("ultralytics")
    job = open_job("ultralytics:yolo11n")
    settings = resolve(job, {"batch": "16"})
    assert (settings["precision"], settings["ema"], settings["accumulate"]) == ("fp16", True, 4)
    assert resolve(job, {"batch": "64"})["accumulate"] == 1


def test_local_config(tmp_path: Path) -> None:
    needs("transformers")
    file = tmp_path / "config.json"
    file.write_text(
        '{"model_type": "segformer", "architectures": ["SegformerForImageClassification"], "num_labels": 3}'
    )
    settings = resolve(open_job(f"transformers:{file}"), {})
    assert (settings["task"], settings["image_size"]) == ("images", (512, 512))
    file.write_text("{}")
    with pytest.raises(InputError, match="is not a config of transformers"):
        open_job(f"transformers:{file}")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("timm:convnext_basis", "timm .* has no model 'convnext_basis'; did you mean convnext"),
        ("transformers:detr-resnet-5", "not on this machine, and nothing is downloaded; did you mean detr-resnet-50"),
        ("ultralytics:yolo99x", "Ultralytics has no model 'yolo99x'"),
    ],
)
def test_unknown_names(name: str, said: str) -> None:
    needs(name.partition(":")[0])
    with pytest.raises(InputError, match=said):
        open_job(name)
