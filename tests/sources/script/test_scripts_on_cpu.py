"""Twelve scripts as people write them: each is followed as it is, and run for real on the CPU to the same step. What is
forecast agrees with PyTorch's own allocator within 1 %, and the script's folder is as it was."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import oomproof
from oomproof.api.check import forecast_step
from oomproof.memory.cards.devices import find_device
from oomproof.sources.script.command import read_command
from oomproof.sources.script.job import ScriptJob
from oomproof.sources.script.running import ScriptRun, run_script
from oomproof.sources.settings import resolve
from oomproof.trace.request import be_silent
from thorough import thorough_but

HERE = Path(__file__).parent
SCRIPTS = {
    "train_classifier": "train_classifier.py --batch-size 8 --workers 2",
    "globals_cuda": "globals_cuda.py",
    "trainer_class": "trainer_class.py trainer_class.yaml",
    "gan_penalty": "gan_penalty.py --bs 16",
    "unet_dice": "unet_dice.py",
    "unet_bf16": "unet_dice.py --amp",
    "detect_boxes": "detect_boxes.py",
    "parallel_vit": "parallel_vit.py",
    "config_overrides": "config_overrides.py train.batch=16 optimizer.args.lr=0.01",
    "contrastive": "contrastive.py",
    "text_checkpointed": "text_checkpointed.py --batch 8",
    "distil_prefetch": "distil_prefetch.py",
    "nightly": "-m nightly.train_signals",
}
QUICK = ("globals_cuda",)


def files_in(folder: Path) -> dict[str, tuple[int, int]]:
    return {
        path.relative_to(folder).as_posix(): (path.stat().st_mtime_ns, path.stat().st_size)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", thorough_but(QUICK, SCRIPTS))
def test_script_as_the_real_allocator_has_it(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "project"
    shutil.copytree(HERE / "scripts", folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "snapshots").mkdir()
    (folder / "snapshots" / "keep.pt").write_text("an old snapshot")
    monkeypatch.chdir(folder)
    before = files_in(folder)
    job = ScriptJob(read_command(f"python {SCRIPTS[name]}"))
    step = run_script(ScriptRun(job.command, dialect="cpu", patience=600, batches=1), be_silent)
    assert files_in(folder) == before
    traced = forecast_step(step, find_device("64GiB"), resolve(job, {}))

    answer = tmp_path / "answer.json"
    words = [sys.executable, str(HERE / "real_script.py"), str(answer), *SCRIPTS[name].split()]
    source = str(Path(oomproof.__file__).parents[1])
    subprocess.run(words, check=True, env={**os.environ, "PYTHONPATH": source}, capture_output=True, cwd=folder)
    real = json.loads(answer.read_text())

    assert step.about.details["steps"] == max(real["steps"])
    peak = traced.allocated.expected
    assert peak == pytest.approx(real["peak"], rel=0.01), (traced.phase, traced.owner, traced.op)
    assert traced.allocated.low <= real["peak"] <= traced.allocated.high
