"""oomproof.ultralytics.Guard: a real training that is watched, and what Ultralytics changes by itself is told."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import oomproof


class Model:
    """As much of a YOLO as callbacks need."""

    def __init__(self) -> None:
        self.callbacks: dict[str, Any] = {}

    def add_callback(self, event: str, action: Any) -> None:
        self.callbacks[event] = action


def test_a_batch_that_ultralytics_halves_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model, trainer = Model(), SimpleNamespace(batch_size=96, args=SimpleNamespace(nbs=64))
    log = tmp_path / "memory.jsonl"
    oomproof.ultralytics.Guard(model, log=log)
    with caplog.at_level(logging.WARNING, "oomproof.guard"):
        model.callbacks["on_train_start"](trainer)
        model.callbacks["on_train_batch_end"](trainer)
        assert not caplog.messages
        trainer.batch_size = 48
        for _ in range(2):
            model.callbacks["on_train_batch_end"](trainer)
        model.callbacks["on_train_end"](trainer)
    assert len(caplog.messages) == 1
    assert "batches of 96 to 48: an update will have 48 images instead of 96" in caplog.messages[0]
    assert [json.loads(line).get("images") for line in log.read_text().splitlines()] == [96, 48, 48, None]


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_real_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ultralytics")
    import numpy as np
    from PIL import Image
    from ultralytics import YOLO

    monkeypatch.chdir(tmp_path)
    for part in ("images", "labels"):
        (tmp_path / part).mkdir()
    for place in range(4):
        Image.fromarray(np.full((64, 64, 3), 40 * place, np.uint8)).save(tmp_path / "images" / f"{place}.png")
        (tmp_path / "labels" / f"{place}.txt").write_text("0 0.5 0.5 0.4 0.4\n")
    (tmp_path / "data.yaml").write_text(f"path: {tmp_path}\ntrain: images\nval: images\nnames: {{0: thing}}\n")
    model = YOLO("yolo11n.yaml")
    oomproof.ultralytics.Guard(model, log=tmp_path / "memory.jsonl")
    model.train(data="data.yaml", epochs=2, imgsz=64, batch=2, device="cpu", workers=0, plots=False, amp=False)
    lines = [json.loads(line) for line in (tmp_path / "memory.jsonl").read_text().splitlines()]
    assert [line.get("step") for line in lines] == [1, 2, 3, 4, None]
    assert lines[0]["host"] > 1 << 20 and lines[0]["images"] == 2
