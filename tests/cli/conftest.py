"""The command line in this process, on a saved step: quick, and without a framework."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from planned import Asked, Jotter

from oomproof.cli import main
from oomproof.memory.about import About
from oomproof.memory.timeline import Builder

MIB = 1 << 20


class Ran(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Ran]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("COLUMNS", "100")

    def run(*arguments: str) -> Ran:
        capsys.readouterr()
        code = main(arguments)
        return Ran(code, *capsys.readouterr())

    return run


@pytest.fixture
def step(tmp_path: Path) -> str:
    """A saved step with 2 GiB of activations."""
    from oomproof.memory.files import timeline_file

    builder = Builder()
    builder.allocate(100 * MIB, kind="parameter", owner="body.conv", op="parameter")
    builder.enter("forward")
    kept = [builder.allocate(512 * MIB, kind="activation", owner="body.conv", op="convolution") for _ in range(4)]
    builder.enter("backward")
    builder.allocate(100 * MIB, kind="gradient", owner="body.conv", op="convolution_backward")
    for block in reversed(kept):
        builder.free(block)
    path = tmp_path / "step.timeline"
    timeline_file.save(builder.build(About(job="hand-made")), path)
    return str(path)


@pytest.fixture
def asked(step: str, monkeypatch: pytest.MonkeyPatch) -> Asked:
    asked = Asked(step)
    monkeypatch.setattr("oomproof.fit", asked.fit)
    return asked


@pytest.fixture
def jotter(asked: Asked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Jotter:
    """The job ``jot`` beside the real ones."""
    from oomproof import sources

    jotter, real = Jotter(tmp_path), sources.open_job

    def opened(text: str, *more: Any, **named: Any) -> Any:
        return jotter if text == "jot" else real(text, *more, **named)

    monkeypatch.setattr("oomproof.sources.open_job", opened)
    return jotter
