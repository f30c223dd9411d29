"""Near misses that a person types: the answer says what was probably meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from oomproof.errors import InputError
from oomproof.sources import open_job


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("resnet50", "a model's name needs its source in front, torchvision:resnet50, timm:resnet50,"),
        ("someone/model-of-theirs", "needs its source in front, .*transformers:someone/model-of-theirs"),
        (
            "best.pt",
            "there is no file best.pt, and weights do not say how .* by its name .*ultralytics:NAME",
        ),
        ("net.onnx", "'net.onnx' is not a job: weights do not say how they are trained; .* the script that trains it"),
        ("python", "a command goes behind --, at the end of the line, as in -- python train.py"),
        ("missing.txt", "there is no file missing.txt: check the path"),
        ("./missing", "there is no file ./missing: check the path"),
        ("~/missing.txt", "a shell puts your home for ~ only where"),
        ("there.txt", "'there.txt' is not a job: expected .*FILE.timeline"),
        ("", "'' is not a job: expected"),
    ],
)
def test_what_was_probably_meant(text: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("there.txt").touch()
    Path("net.onnx").touch()
    with pytest.raises(InputError, match=told) as raised:
        open_job(text)
    assert "\n" not in str(raised.value)
