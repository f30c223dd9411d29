"""``oomproof check --data``, ``--validate`` and ``--shm``: the report, the JSON, the exit code, what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from oomproof.cli import main

JOB = """
import torch, oomproof

def make_batch(images=(oomproof.ImageSpec(32, 48, 3),) * 2):
    high, wide = max(i.height for i in images), max(i.width for i in images)
    return torch.rand(len(images), 3, high, wide), [torch.rand(i.objects, 4) for i in images]

def loss(model, batch):
    scores = model(batch[0]).flatten(1)
    return sum((scores[:1] * boxes[:, :1]).mean() for boxes in batch[1] if len(boxes))

def job(batch: int = 2):
    net = lambda: torch.nn.Conv2d(3, 4, 3)
    return oomproof.TorchJob(net, make_batch, loss, validate=lambda net, data: net(data[0]))
"""


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(JOB)
    images = [{"id": n, "file_name": f"{n}.jpg", "height": 32 + n, "width": 48} for n in range(8)]
    boxes = [(n, k) for n in range(8) for k in range(500 if n == 5 else 2)]
    objects = [
        {"id": at, "image_id": n, "category_id": 1, "bbox": [1, 1, 9, 9], "iscrowd": 0}
        for at, (n, _) in enumerate(boxes)
    ]
    coco = {"images": images, "annotations": objects, "categories": [{"id": 1, "name": "a"}]}
    (tmp_path / "data.json").write_text(json.dumps(coco))
    return tmp_path


def test_the_worst_batch_is_named(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["check", "own.py:job", "--data", "data.json", "--on", "8GiB", "-q"]
    assert main([*command, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    worst = document["data"]["worst"]
    assert [image["name"] for image in worst["images"]] == ["7.jpg", "5.jpg"]  # the highest, the most crowded last
    assert worst["padded"] == [39, 48] and worst["objects"] == 502
    assert document["data"]["typical"]["objects"] == 4
    assert document["validation"]["outcome"] == "fits" and document["decides"] == "training"
    assert main([*command, "--no-validate", "--shm", "0.01MiB", "--set", "workers=2"]) == 2
    report = " ".join(capsys.readouterr().out.split())
    assert "does not fit /dev/shm" in report and "5.jpg" in report and "Parts of the run" in report


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--images", "."], "--images says more about --data PATH, which was not given"),
        (["--no-grouping"], "--grouping says more about --data"),
        (["--data", "data.json", "--sweep", "batch=1,2"], "leave one of them out"),
        (["--data", "nothing.json"], "there is no nothing.json"),
        (["--no-validate", "--validation-keeps", "3"], "--no-validate leaves nothing"),
        (["--validation-batch", "-1"], "batch must be 0 or more"),
        (["--shm", "lots"], "shm must be a size"),
        (["--shm", "-1MiB"], "shm must be a size of 0 or more"),
        (["--validate", "--sweep", "batch=1,2"], "--sweep looks at training steps alone"),
    ],
)
def test_what_is_refused(files: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str) -> None:
    assert main(["check", "own.py:job", "--on", "8GiB", *options]) == 1
    assert message in capsys.readouterr().err


def test_another_job_on_the_same_card(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["check", "own.py:job", "--on", "RTX 3060", "--no-validate", "-q"]
    assert main([*command, "--beside", "3GiB"]) == 0
    assert "3.00 GiB of it held by another job" in " ".join(capsys.readouterr().out.split())
    assert main([*command, "--beside", "11.7GiB"]) == 2
    assert main([*command, "--beside", "3"]) == 1
    assert "such as 3GiB" in capsys.readouterr().err
    assert main(["fit", "own.py:job", "--on", "RTX 3060", "--beside", "12GiB", "-q"]) == 1
    assert "below the 11.76 GiB" in capsys.readouterr().err


def test_validation_after_training(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["check", "own.py:job", "--on", "8GiB", "--validate", "-q"]
    assert main([*command, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    after = document["validation"]["after_training"]
    assert after["expected"] >= max(document["device"]["expected"], document["validation"]["device"]["expected"])
    assert main(command) == 0
    report = " ".join(capsys.readouterr().out.split())
    assert "after training" in report and "training's cache kept" in report
    assert "validation and what happens between steps" not in report
