"""Bad jobs through the real command in a process of its own: exit 1, one line on stderr, no traceback, nothing left."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oomproof import cli
from oomproof.memory.about import About
from oomproof.memory.files import timeline_file
from oomproof.memory.timeline import Builder
from thorough import THOROUGH, thorough_but

SOURCES = str(Path(cli.__file__).parents[2])
ENVIRONMENT = {**os.environ, "PYTHONPATH": SOURCES, "PYTHONDONTWRITEBYTECODE": "1"}
needs_torch = pytest.mark.slow

JOBS = """
import sys

import torch
from oomproof import TorchJob


def job(loss=None, batch=2, side=16, rate=0.1):
    if loss is None:
        loss = lambda net, images: net(images).sum()
    net = lambda: torch.nn.Conv2d(3, 4, 3)
    return TorchJob(model=net, batch=lambda: torch.rand(batch, 3, side, side), loss=loss)


def raises():
    raise RuntimeError("first line\\nsecond line")


def raises_in_the_step():
    def loss(net, images):
        scores = net(images)
        raise ValueError("this loss is broken")
    return job(loss)


def leaves():
    def loss(net, images):
        sys.exit("enough")
    return job(loss)


def misfit():
    return job(lambda net, images: net(images[:, :2]).sum())


def nothing():
    return None


def text():
    return job(lambda net, images: "a text")


class Unusual(BaseException):
    pass


def unusual():
    raise Unusual("not even an Exception")
"""

Refused = Callable[..., str]


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "oomproof", *arguments]


@pytest.fixture
def refused(tmp_path: Path) -> Refused:
    """Runs the command in ``tmp_path`` and returns its one line."""

    def refused(*arguments: str) -> str:
        before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
        ran = subprocess.run(
            command(*arguments), cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=False
        )
        assert (ran.returncode, ran.stdout) == (1, ""), ran.stderr
        lines = ran.stderr.splitlines()
        progress = 0 if {"--quiet", "-q", "--json"} & set(arguments) else len(lines) - 1
        assert not any(line.startswith("oomproof: ") for line in lines[:progress])
        assert len(lines) - progress == 1, ran.stderr
        assert lines[-1].startswith("oomproof: ")
        assert "Traceback" not in ran.stderr and "internal error" not in ran.stderr
        assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
        return lines[-1]

    return refused


@pytest.fixture
def jobs(tmp_path: Path) -> str:
    (tmp_path / "jobs.py").write_text(JOBS)
    return "jobs.py"


# -- names -------------------------------------------------------------------------------------------------------


@needs_torch
def test_unknown_model_names_the_nearest(refused: Refused) -> None:
    line = refused("check", "torchvision:maskrcnn_resnet50", "--on", "8GiB", "-q")
    assert "'maskrcnn_resnet50'" in line and "maskrcnn_resnet50_fpn" in line


def test_unknown_gpu_names_the_nearest_before_anything_is_opened(refused: Refused) -> None:
    line = refused("check", "no_such_file.py:job", "--on", "RTX 3061")
    assert "'RTX 3061'" in line and "RTX 3060" in line


@pytest.mark.parametrize("job", ["no_such.py:job", "no_such.timeline", "no_such.pickle", "resnet50", "", ":", "a:b"])
def test_no_such_job(refused: Refused, job: str) -> None:
    assert job.removesuffix(":job") in refused("check", job, "--on", "8GiB", "-q")


def test_a_file_without_its_function(refused: Refused, jobs: str) -> None:
    assert f"{jobs}:FUNCTION" in refused("check", jobs, "--on", "8GiB", "-q")


# -- user code ---------------------------------------------------------------------------------------------------


def test_a_file_that_raises_shows_its_line(refused: Refused, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import math\n\nSIZE = math.sqrt(-1)\n")
    line = refused("check", "train.py:job", "--on", "8GiB", "-q")
    assert "ValueError" in line and "train.py:3: SIZE = math.sqrt(-1)" in line


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("def job(:\n", "train.py:1: def job(:"),
        ("import no_such_module\n", "train.py:1: import no_such_module"),
        ("import sys\nsys.exit(0)\n", "train.py:2: sys.exit(0)"),
        ("raise MemoryError\n", "MemoryError"),
        ("job = 3\n", "has no function 'job'"),
        ("def job(batch):\n    pass\n", "'batch' has none"),
        ("\0", "SyntaxError"),
    ],
)
def test_files_that_are_no_job(refused: Refused, tmp_path: Path, code: str, said: str) -> None:
    (tmp_path / "train.py").write_text(code)
    assert said in refused("check", "train.py:job", "--on", "8GiB", "-q")


@needs_torch
@pytest.mark.parametrize(
    ("job", "said"),
    [
        pytest.param("raises", ["RuntimeError: first line", 'raise RuntimeError("first line'], marks=THOROUGH),
        ("raises_in_the_step", ["ValueError: this loss is broken", 'raise ValueError("this loss is broken")']),
        pytest.param("leaves", ["SystemExit: enough", 'sys.exit("enough")'], marks=THOROUGH),
        pytest.param("misfit", ["RuntimeError", "net(images[:, :2])"], marks=THOROUGH),
        pytest.param("nothing", ["must return an oomproof.TorchJob", "NoneType"], marks=THOROUGH),
        pytest.param("text", ["must return a tensor", "str"], marks=THOROUGH),
    ],
)
def test_user_code_that_fails(refused: Refused, jobs: str, job: str, said: list[str]) -> None:
    line = refused("check", f"{jobs}:{job}", "--on", "8GiB", "-q", "--save", "a.timeline")
    for part in said:
        assert part in line


@pytest.mark.thorough
@needs_torch
def test_an_exception_that_is_not_one_is_one_line_too(jobs: str, tmp_path: Path) -> None:
    arguments = command("check", f"{jobs}:unusual", "--on", "8GiB", "-q")
    ran = subprocess.run(arguments, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr.count(b"\n")) == (1, b"", 1), ran.stderr
    assert b"not even an Exception" in ran.stderr


@pytest.mark.thorough
@needs_torch
def test_progress_stands_above_the_line_unless_quiet(jobs: str, tmp_path: Path) -> None:
    for quiet, lines in (((), 2), (("--quiet",), 1), (("--json",), 1)):
        arguments = command("check", f"{jobs}:raises_in_the_step", "--on", "8GiB", *quiet)
        ran = subprocess.run(arguments, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=False)
        assert (ran.returncode, ran.stdout) == (1, "")
        assert (len(ran.stderr.splitlines()) == 1) == (lines == 1)
        assert ran.stderr.splitlines()[-1].startswith("oomproof: the job raised ValueError")


# -- numbers -----------------------------------------------------------------------------------------------------


@needs_torch
@pytest.mark.parametrize(
    "arguments",
    [
        ["--batch", "0"],
        pytest.param(["--batch", "-3"], marks=THOROUGH),
        pytest.param(["--batch", "nan"], marks=THOROUGH),
        pytest.param(["--batch", "inf"], marks=THOROUGH),
        pytest.param(["--batch", "2.5"], marks=THOROUGH),
        ["--set", "side=-inf"],
        pytest.param(["--set", "rate=nan"], marks=THOROUGH),
        pytest.param(["--set", "accumulate=0"], marks=THOROUGH),
        pytest.param(["--sweep", "batch=1,0"], marks=THOROUGH),
    ],
    ids=" ".join,
)
def test_sizes_that_no_step_can_have(refused: Refused, jobs: str, arguments: list[str]) -> None:
    name = arguments[1].partition("=")[0] if "=" in arguments[1] else arguments[0].removeprefix("--")
    assert name in refused("check", f"{jobs}:job", "--on", "8GiB", "-q", *arguments)


@needs_torch
@pytest.mark.parametrize("size", thorough_but(["large"], ["0x224", "224x-1", "nanx224", "infxinf", "1x2x3", "large"]))
def test_image_sizes(refused: Refused, size: str) -> None:
    assert "image_size" in refused("check", "torchvision:resnet18", "--on", "8GiB", "-q", "--image-size", size)


# -- files -------------------------------------------------------------------------------------------------------


class OddAbout(About):
    """Says in a file whatever it is told to."""

    def as_header(self) -> dict[str, Any]:
        return dict(self.details)


def saved(path: Path, about: dict[str, Any] | None = None, spec: dict[str, Any] | None = None) -> bytes:
    step = Builder()
    step.allocate(1 << 20, kind="parameter", owner="net", op="parameter")
    if spec is not None:
        step.call(owner="net", spec=spec)
    timeline_file.save(step.build(OddAbout(details={"job": "hand-made", **(about or {})})), path)
    return path.read_bytes()


@pytest.mark.parametrize("name", ["a.timeline", "a.pickle"])
def test_truncated_and_foreign_files(refused: Refused, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    whole = saved(tmp_path / "whole.timeline") if name.endswith("timeline") else pickle.dumps({"segments": [{}] * 9})
    for content in (b"", whole[:7], whole[: len(whole) // 2], whole[:-1], b"\x89PNG\r\n\x1a\n" + bytes(100)):
        path.write_bytes(content)
        assert name in refused("check", name, "--on", "8GiB", "-q")


@pytest.mark.parametrize("name", ["evil.pickle", "evil.timeline"])
def test_a_pickle_that_would_run_a_command(refused: Refused, tmp_path: Path, name: str) -> None:
    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.system, (f"touch {tmp_path / 'ran'}",)

    (tmp_path / name).write_bytes(pickle.dumps({"segments": [], "device_traces": [[Evil()]]}))
    assert name in refused("check", name, "--on", "8GiB", "-q")
    assert not (tmp_path / "ran").exists()


HOSTILE_ABOUT: dict[str, dict[str, Any]] = {
    "another dialect": {"dialect": "tpu"},
    "threads in words": {"dialect": "cpu", "threads": "many"},
    "settings that are none": {"settings": [1, 2]},
    "notes that are none": {"not_counted": 7},
}


@pytest.mark.parametrize("name", HOSTILE_ABOUT)
def test_a_timeline_that_says_odd_things_about_itself(refused: Refused, tmp_path: Path, name: str) -> None:
    saved(tmp_path / "odd.timeline", HOSTILE_ABOUT[name])
    refused("check", "odd.timeline", "--on", "8GiB", "-q")


@pytest.mark.parametrize(
    "spec",
    [
        {"op": "convolution"},
        {"op": "nms"},
        {"op": "nms", "elements": -9},
        {"op": "sort", "elements": 1e30, "item": 4},
        {"op": "sort", "elements": 10**30, "item": 4},
        {"op": "convolution", "x": "abc"},
    ],
    ids=str,
)
def test_calls_that_cannot_be_priced(refused: Refused, tmp_path: Path, spec: dict[str, Any]) -> None:
    saved(tmp_path / "odd.timeline", spec=spec)
    refused("check", "odd.timeline", "--on", "8GiB", "-q")


def test_save_into_a_missing_folder(refused: Refused, tmp_path: Path) -> None:
    saved(tmp_path / "a.timeline")
    assert "no folder" in refused("check", "a.timeline", "--on", "8GiB", "--save", "no/such/b.timeline")
    assert not (tmp_path / "no").exists()


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write everywhere")
def test_save_where_one_may_not_write(refused: Refused, tmp_path: Path) -> None:
    saved(tmp_path / "a.timeline")
    (tmp_path / "locked").mkdir(mode=0o500)
    refused("check", "a.timeline", "--on", "8GiB", "--save", "locked/b.timeline")


# -- Ctrl-C ------------------------------------------------------------------------------------------------------


@needs_torch
def test_interrupted_while_tracing(tmp_path: Path) -> None:
    """In the middle of the traced step, not while a file is opened (test_process.py has that)."""
    endless = "def endless():\n    def loss(net, images):\n        open('started', 'w').close()\n"
    endless += "        while True:\n            images = net(images)[:, :3] + 1\n    return job(loss, side=4000)\n"
    (tmp_path / "jobs.py").write_text(f"{JOBS}\n\n{endless}")
    process = subprocess.Popen(
        command("check", "jobs.py:endless", "--on", "8GiB", "--save", "a.timeline", "-q"),
        cwd=tmp_path,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not (tmp_path / "started").exists() and process.poll() is None:
        time.sleep(0.05)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "oomproof: interrupted\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["jobs.py", "started"]
