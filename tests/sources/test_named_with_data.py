"""Models by name, held against a dataset: all batches alike, or as crowded as the fullest image."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import oomproof
from oomproof.memory.batch_spec import MOST_OBJECTS, OBJECTS_HELP
from oomproof.sources.job import Setting, Settings
from oomproof.sources.torch.named import NamedJob, batch_setting, size_setting

sys.path.append(str(Path(__file__).parents[1] / "data" / "annotations"))


def padded_job(mosaic: int) -> NamedJob:
    """Every image has a table of as many rows as the fullest one has objects."""

    def make(settings: Settings) -> oomproof.TorchJob:
        images, size, boxes = settings["batch"], settings["image_size"], settings["boxes"]

        def loss(model: Any, batch: Any) -> Any:
            return (model(batch[0]).mean(dim=(1, 2, 3))[:, None, None] * batch[1]).square().mean()

        return oomproof.TorchJob(
            lambda: torch.nn.Conv2d(3, 4, 3),
            lambda: (torch.rand(images, 3, *size), torch.rand(images, boxes, 256)),
            loss,
        )

    own = (batch_setting(2), size_setting((32, 32)), Setting("boxes", MOST_OBJECTS, OBJECTS_HELP))
    return NamedJob("padded:net", own, make, lambda settings: [], mosaic=mosaic)


@pytest.fixture
def annotations(tmp_path: Path) -> Path:
    import dataset_files as files

    counts = (1, 2, 3, 2, 40, 1)
    pictures = [
        files.Picture(f"{n}.png", 64, 48, tuple(files.Box(x, 5, 9, 9) for x in range(count)))
        for n, count in enumerate(counts)
    ]
    files.write_coco(pictures, tmp_path / "annotations.json")
    return tmp_path / "annotations.json"


@pytest.mark.parametrize("mosaic", [1, 4])
def test_the_fullest_image_decides(annotations: Path, mosaic: int) -> None:
    job = padded_job(mosaic)
    answer = oomproof.check(job, "8GiB", data=annotations)
    assert answer.epoch is not None and not answer.epoch.exact
    assert "4.png" in {image.name for image in answer.epoch.worst.spec.images}
    stated = oomproof.check(job, "8GiB", boxes=40 * mosaic)
    assert answer.allocated.expected == stated.allocated.expected
    assert answer.epoch.typical.allocated.expected < answer.allocated.expected


def test_batches_of_a_classifier_are_alike(annotations: Path) -> None:
    pytest.importorskip("timm", reason="timm is not installed")
    answer = oomproof.check("timm:resnet10t", "8GiB", data=annotations, batch=2, image_size="64x64")
    assert answer.epoch is None and any("need the same on the device" in note for note in answer.notes)
