"""The parent's side: starts the child, says what it is at, and takes its Timeline. A step is traced once a process."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

import oomproof
from oomproof.errors import JobError
from oomproof.frameworks.object_detection import require_api
from oomproof.memory.activity import Work
from oomproof.memory.files import timeline_file
from oomproof.memory.timeline import Timeline
from oomproof.trace.tf_object_detection.request import ERROR, PROGRESS, REQUEST, TIMELINE, WORK, StepRequest

ENVIRONMENT = {
    "TF_USE_LEGACY_KERAS": "1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "CUDA_VISIBLE_DEVICES": "-1",  # a forecast needs none of this machine's GPUs
    "PYTHONHASHSEED": "0",  # the API goes through sets of names: two processes must do so in one order (many_images.py)
}
_LONGEST = 300
"""characters of an error that are shown"""
_LOOKS = 0.2
"""seconds between looks at how far it is"""
_KEPT = 64

_kept: dict[str, Timeline] = {}


def trace_api_step(request: StepRequest, name: str, progress: Callable[[str], None] = lambda text: None) -> Timeline:
    """One steady training step of the API, as its own code builds it."""
    require_api(f"a forecast of {name}")
    written = json.dumps(request.as_json(), sort_keys=True)
    key = hashlib.sha256(written.encode()).hexdigest()
    if key not in _kept:
        with tempfile.TemporaryDirectory(prefix="oomproof-tfod-") as made:
            folder = Path(made)
            (folder / REQUEST).write_text(written)
            _run(folder, progress)
            timeline = _answer(folder, name)
        while len(_kept) >= _KEPT:
            _kept.pop(next(iter(_kept)))
        _kept[key] = timeline
    return _kept[key]


def _run(folder: Path, progress: Callable[[str], None]) -> None:
    # -P: a file of the working folder must not stand for a module of the same name.
    command = [sys.executable, "-P", "-m", "oomproof.trace.tf_object_detection.child", str(folder)]
    ours = str(Path(oomproof.__file__).parents[1])
    paths = [ours, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    environment = {**os.environ, **ENVIRONMENT, "PYTHONPATH": os.pathsep.join(paths)}
    progress("loading the Object Detection API")
    # Its stdin is a pipe that is never written to: it ends when this process does, killed or not (xla/parent.py).
    with (folder / "output.txt").open("wb") as output:
        child = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=output, stderr=output)
    said = ""
    try:
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(_LOOKS)
                return
            now = _last_line(folder / PROGRESS)
            if now and now != said:
                said = now
                progress(said)
    finally:  # Ctrl-C, or an error in what shows the progress
        if child.poll() is None:
            child.kill()
            child.wait()
        if child.stdin is not None:
            child.stdin.close()


def _answer(folder: Path, name: str) -> Timeline:
    if (folder / ERROR).is_file():
        error = json.loads((folder / ERROR).read_text())
        raise JobError(f"{name}: the Object Detection API cannot build its training step: {_describe_error(error)}")
    if not (folder / TIMELINE).is_file():
        said = _last_line(folder / "output.txt")
        raise JobError(
            f"{name}: the process that traces the Object Detection API ended without an answer"
            f"{said and ': ' + said} (too little memory is a usual reason)"
        )
    timeline = timeline_file.load_timeline(folder / TIMELINE)
    with np.load(folder / WORK, allow_pickle=False) as columns:
        return replace(timeline, work=Work(**{column: columns[column] for column in columns.files}))


def _describe_error(error: dict[str, str]) -> str:
    flat = " ".join(f"{error['kind']}: {error['text']}".split())
    return flat if len(flat) <= _LONGEST else flat[:_LONGEST] + " ..."


def _last_line(file: Path) -> str:
    if not file.is_file():
        return ""
    lines = [line.strip() for line in file.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1][:_LONGEST] if lines else ""
