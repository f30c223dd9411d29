"""Runs the child that compiles, and keeps what it found: the same step for the same GPU is compiled once."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import oomproof
from oomproof.errors import JobError
from oomproof.trace.xla import answers
from oomproof.trace.xla.installed import list_versions, require_xla
from oomproof.trace.xla.targets import Target

ENVIRONMENT = {
    "KERAS_BACKEND": "jax",
    "JAX_PLATFORMS": "cpu",  # what runs, runs here; the GPU is only compiled for
    "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",  # cuDNN and the other libraries are not called, and need not be there
    "TF_CPP_MIN_LOG_LEVEL": "3",
}
_LONGEST = 300
"""characters of a compiler's message that are shown"""
_SPEAKING = 2.0
"""seconds between words about how far it is"""

_kept: dict[str, Compiled] = {}


@dataclass(frozen=True)
class Compiled:
    """What the compiler has planned."""

    proto: bytes
    """HloProto: the optimized module in its order, and the buffer assignment"""
    sizes: Mapping[str, int]
    """bytes of arguments, output, alias and temp, as the compiler sums them up"""
    version: str
    """of JAX, which XLA came with"""
    roles: tuple[tuple[str, str], ...] = field(default=())
    """(kind, variable) of every parameter, where the child has built the model"""


def compile_step(
    request: Mapping[str, Any], target: Target, *, hlo: bytes = b"", progress: Callable[[str], None] = lambda text: None
) -> Compiled:
    """Compiles an HLO module, or the model that the request describes, for a GPU."""
    require_xla("compiling with XLA")
    asked = json.dumps([request, target.text, list_versions(), oomproof.__version__], sort_keys=True)
    key = hashlib.sha256(asked.encode() + hlo).hexdigest()
    if key not in _kept:
        # Code of the user's, which a request may name, can change without the request.
        lasting = not request.get("modules")
        known = answers.recall(key) if lasting else None
        if known is None:
            known = _ask(request, target, hlo, progress)
            if lasting:
                answers.keep_answer(key, *known)
        facts, proto = known
        roles = tuple((kind, name) for kind, name in facts.get("roles", ()))
        _kept[key] = Compiled(proto, facts["sizes"], facts["version"], roles)
    return _kept[key]


def _ask(
    request: Mapping[str, Any], target: Target, hlo: bytes, progress: Callable[[str], None]
) -> tuple[Mapping[str, Any], bytes]:
    with tempfile.TemporaryDirectory(prefix="oomproof-xla-") as name:
        folder = Path(name)
        written = {**request, "target": target.text}
        if hlo:
            (folder / "step.hlo").write_bytes(hlo)
            written["hlo"] = str(folder / "step.hlo")
        (folder / "request.json").write_text(json.dumps(written))
        _run(folder, target.gpu, progress)
        return _answer(folder)


def _run(folder: Path, gpu: str, progress: Callable[[str], None]) -> None:
    # -P: a file of the working folder must not stand for a module of the same name.
    command = [sys.executable, "-P", "-m", "oomproof.trace.xla.child", str(folder)]
    ours = str(Path(oomproof.__file__).parents[1])
    paths = [ours, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    environment = {**os.environ, **ENVIRONMENT, "PYTHONPATH": os.pathsep.join(paths)}
    # Its stdin is a pipe that is never written to: it ends when this process does, killed or not (parent.py).
    with (folder / "errors.txt").open("wb") as errors:
        child = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=errors, stderr=errors)
    spent = 0.0
    try:
        while True:
            progress(f"compiling with XLA for the {gpu}, {spent:.0f} s so far")
            try:
                child.wait(_SPEAKING)
                return
            except subprocess.TimeoutExpired:
                spent += _SPEAKING
    finally:  # Ctrl-C, or an error in what shows the progress
        if child.poll() is None:
            child.kill()
            child.wait()
        if child.stdin is not None:
            child.stdin.close()


def _answer(folder: Path) -> tuple[Mapping[str, Any], bytes]:
    answer: dict[str, Any] = {}
    if (folder / "answer.json").is_file():
        answer = json.loads((folder / "answer.json").read_text())
    if "error" in answer:
        raise JobError(
            f"XLA could not compile the step: {_short(answer['error'])}; --set jit_compile=false does without"
        )
    if not answer.get("hlo"):
        said = _last_words((folder / "errors.txt").read_text(errors="replace"))
        raise JobError(
            f"XLA's compiler ended without an answer{said and ': ' + said}; --set jit_compile=false does without it"
        )
    facts: dict[str, Any] = {name: answer[name] for name in ("sizes", "version", "roles") if name in answer}
    return facts, Path(answer["hlo"]).read_bytes()


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _LONGEST else flat[:_LONGEST] + " ..."


def _last_words(text: str) -> str:
    """The last line that says something; stack frames of a crash do not."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith(("@", "***"))]
    return _short(lines[-1]) if lines else ""
