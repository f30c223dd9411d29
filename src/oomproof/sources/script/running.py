"""Starts the process that a script is followed in, listens to it, and sees to it that nothing of it is left.

The process tells what it does on a pipe, a line of JSON each, and leaves the Timeline in a file. Whatever the script
prints goes to another pipe, of which only the end is kept.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import selectors
import shutil
import subprocess
import tempfile
import time
import uuid
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil

from oomproof.errors import InternalError, JobError
from oomproof.memory.cards.devices import Device
from oomproof.memory.files import timeline_file
from oomproof.memory.files.activity_file import with_activity
from oomproof.memory.timeline import Timeline
from oomproof.sources.script.command import Command
from oomproof.sources.script.ending import TAG, Family
from oomproof.trace.request import Progress

CHILD = Path(__file__).parent / "child" / "main.py"
ENVIRONMENT = {
    "CUDA_VISIBLE_DEVICES": "",  # no real GPU is touched
    "PYTHONDONTWRITEBYTECODE": "1",
    "MPLBACKEND": "Agg",
    "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1",
    "WANDB_MODE": "disabled", "WANDB_SILENT": "true", "COMET_MODE": "disabled", "NEPTUNE_MODE": "debug",
    "CLEARML_OFFLINE_MODE": "1", "YOLO_OFFLINE": "true", "TQDM_DISABLE": "1", "TOKENIZERS_PARALLELISM": "false",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}  # fmt: skip
"""Services that log trainings are switched off by their own names for it."""
_KEPT_OUTPUT = 8192
_PREFIX = "oomproof-script-"
_LEFT_AFTER = 24 * 3600
"""seconds. Another container may share the folder, but not our numbers of processes; no forecast takes that long"""
_LONGEST = 300
_LONGEST_LINE = 16 << 20
"""bytes that may wait for the end of a line on the pipe: a script may write anything to it"""
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07\x1b]*\x07?")
"""what makes a terminal change colours and titles"""
_MISSING_GPUS = re.compile(r"(?i)requested gpu|invalid device ordinal|(not enough|number of|at least \d+) gpus")
"""what Lightning, PyTorch and people say where there are fewer GPUs than a script wants"""
_PLAIN_CAPABILITY = (8, 0)
"""of a device that is only a size"""


@dataclass(frozen=True)
class ScriptRun:
    """A script to follow, on a device."""

    command: Command
    device: Device | None = None
    patience: int = 300
    validate: bool = False
    batches: int = 0
    """of a loader that are looked at for the largest; 0: a few"""
    gpus: int = 1
    """that the script finds, where no launcher says how many"""
    dialect: str = "cuda"
    jit_compile: str = "own"
    """of Keras: what it would do, or true, or false"""
    edits: Mapping[str, bytes] = field(default_factory=dict)
    """files that the script finds with another content"""


def run_script(run: ScriptRun, progress: Progress) -> Timeline:
    """The Timeline of the first steps of a script."""
    _remove_left_behind()
    with tempfile.TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True) as name:
        folder = Path(name)
        (folder / "tmp").mkdir()
        (folder / "request.json").write_text(json.dumps(_request(run)))
        progress(f"starting {run.command.name}")
        heard = _follow(run, folder, progress)
        if "error" in heard:
            kind = {"InternalError": InternalError}.get(heard.get("kind", ""), JobError)
            text = _in_one_line(str(heard["error"]))
            wants_more = _MISSING_GPUS.search(text) and run.gpus == 1 and run.command.ranks is None
            raise kind(f"{text}; it found one GPU: if it trains on several, add --gpus N" if wants_more else text)
        file = folder / "step.timeline"
        if not file.is_file():
            raise JobError(_describe_early_end(run, heard))
        timeline = with_activity(timeline_file.load_timeline(file), folder / "step.activity")
        about = timeline.about
        seen = {name: heard.get(name, []) for name in ("options", "read")}
        return replace(timeline, about=replace(about, details={**about.details, **seen}))


def _remove_left_behind() -> None:
    """Folders of runs that were killed with all their processes, so that none of them could."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            request = folder / "request.json"
            is_old = time.time() - request.stat().st_mtime > _LEFT_AFTER
            if is_old and not psutil.pid_exists(json.loads(request.read_text())["parent"]):
                shutil.rmtree(folder, ignore_errors=True)


def _request(run: ScriptRun) -> dict[str, Any]:
    command, device = run.command, run.device
    return {
        "parent": os.getpid(),
        "kind": command.kind,
        "target": command.target,
        "arguments": command.arguments,
        "ranks": command.ranks or 1,
        "gpus": max(run.gpus, command.ranks or 1),
        "name": command.name,
        "card": {
            "name": device.name if device else "GPU",
            "total": device.total if device else 80 << 30,
            "capability": (device.capability if device and device.capability != (0, 0) else _PLAIN_CAPABILITY),
        },
        "device": asdict(device) if device else None,
        "jit_compile": run.jit_compile,
        "edits": {file: base64.b64encode(content).decode() for file, content in run.edits.items()},
        "validate": run.validate,
        "batches": run.batches,
        "dialect": run.dialect,
    }


def _follow(run: ScriptRun, folder: Path, progress: Progress) -> dict[str, Any]:
    """Runs the process until it ends or patience does; what it said last, and the end of what it printed."""
    reading, writing = os.pipe()
    output_reading, output_writing = os.pipe()
    tag = uuid.uuid4().hex
    words = [run.command.python, *run.command.options, str(CHILD), str(folder), str(writing)]
    environment = {**os.environ, **ENVIRONMENT, **_as_first_rank(run.command.ranks), **run.command.variables}
    environment |= {TAG: tag, "TMPDIR": str(folder / "tmp"), **_refuse_downloads(folder)}
    child = subprocess.Popen(
        words,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=output_writing,
        stderr=output_writing,
        pass_fds=(writing,),
        start_new_session=True,
    )
    os.close(writing)
    os.close(output_writing)
    family = Family(child, tag)
    heard: dict[str, Any] = {}
    kept: deque[bytes] = deque()
    until = time.monotonic() + run.patience
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(reading, selectors.EVENT_READ)
            selector.register(output_reading, selectors.EVENT_READ)
            rest = b""
            while "done" not in heard:
                family.look()
                left = until - time.monotonic()
                if left <= 0 and heard.get("kept"):
                    break  # it was seen to train, and went on to look for more
                if left <= 0:
                    heard["error"] = _too_slow(run, heard, kept)
                    break
                ready = selector.select(min(left, 0.5))
                for key, _ in ready:
                    content = os.read(key.fd, 1 << 16)
                    if key.fd == output_reading:
                        _keep(kept, content)
                        if not content:
                            selector.unregister(output_reading)
                    elif content:
                        *lines, rest = (rest[-_LONGEST_LINE:] + content).split(b"\n")
                        for line in lines:
                            _hear(line, heard, progress)
                    else:  # it has closed the pipe, or ended
                        selector.unregister(reading)
                if not ready and child.poll() is not None:
                    break
    finally:
        family.end()
        for descriptor in (reading, output_reading):
            os.close(descriptor)
    heard.setdefault("code", child.returncode)
    heard["output"] = b"".join(kept).decode(errors="replace")
    return heard


def _refuse_downloads(folder: Path) -> dict[str, str]:
    """Programs that the script starts to download something fail at once, instead of trying again for minutes: they are
    sent to a port where nothing listens."""
    (folder / ".curlrc").write_text('proxy = "http://127.0.0.1:9"\n')
    (folder / "wgetrc").write_text(
        "use_proxy = on\nhttp_proxy = http://127.0.0.1:9\nhttps_proxy = http://127.0.0.1:9\ntries = 1\n"
    )
    return {"CURL_HOME": str(folder), "WGETRC": str(folder / "wgetrc")}


def _as_first_rank(ranks: int | None) -> dict[str, str]:
    """What a launcher sets for the first of its processes."""
    if ranks is None:
        return {}
    count = str(ranks)
    return {
        "RANK": "0", "LOCAL_RANK": "0", "GROUP_RANK": "0", "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count,
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": "none",
    }  # fmt: skip


def _hear(line: bytes, heard: dict[str, Any], progress: Progress) -> None:
    try:
        said = json.loads(line)
    except ValueError:  # a script that writes to every descriptor it finds
        return
    if isinstance(said, dict):
        heard.update(said)
        if "doing" in said:
            progress(_in_one_line(str(said["doing"]))[:_LONGEST])


def _keep(kept: deque[bytes], content: bytes) -> None:
    kept.append(content)
    while sum(map(len, kept)) - len(kept[0]) > _KEPT_OUTPUT:
        kept.popleft()


def _too_slow(run: ScriptRun, heard: Mapping[str, Any], kept: deque[bytes]) -> str:
    doing = f" (it was {heard['doing']})" if heard.get("doing") else ""
    said = _last_words(b"".join(kept).decode(errors="replace"))
    return (
        f"{run.command.name} did not come to the end of its second step within {run.patience} s{doing}"
        f"{said and '; the last that it printed: ' + said}; give it more time with --patience SECONDS"
    )


def _describe_early_end(run: ScriptRun, heard: Mapping[str, Any]) -> str:
    code = heard.get("code")
    how = f"was killed by signal {-code}" if isinstance(code, int) and code < 0 else f"ended with exit code {code}"
    said = _last_words(str(heard.get("output", "")))
    doing = f" while {heard['doing']}" if heard.get("doing") else ""
    return f"{run.command.name} {how}{doing} before its second step{said and ': ' + said}"


def _last_words(text: str) -> str:
    lines = [line for line in map(_in_one_line, text.replace("\r", "\n").splitlines()) if line]
    return lines[-1][:_LONGEST] if lines else ""


def _in_one_line(text: str) -> str:
    """Without what a terminal would not show but obey."""
    plain = _ESCAPES.sub("", text)
    return " ".join("".join(each if each.isprintable() else " " for each in plain).split())
