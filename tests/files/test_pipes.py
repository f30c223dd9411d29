"""Logs out of named pipes are read; devices, and pipes that nobody writes to, are answered at once."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import oomproof
from oomproof.errors import InputError
from oomproof.files import pipes

LOG = b"Epoch 1\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 8 GiB.\n"
pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="named pipes")


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "train.log")
    return tmp_path / "train.log"


def write_later(path: Path, content: bytes, pause: float) -> threading.Thread:
    def write() -> None:
        with path.open("wb") as pipe:  # waits for the reader
            time.sleep(pause)
            pipe.write(content)

    thread = threading.Thread(target=write)
    thread.start()
    return thread


@pytest.mark.parametrize("pause", [0.0, 0.5], ids=["at once", "after a silence"])
def test_a_pipe_is_a_log(fifo: Path, pause: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipes, "PATIENCE", 0.3)  # for a writer, not for his words
    writer = write_later(fifo, LOG * 3000, pause)
    found = oomproof.explain(fifo)
    writer.join()
    assert found.facts["requested"] == 2 << 30


def test_a_pipe_that_nobody_writes_to(fifo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipes, "PATIENCE", 0.3)
    with pytest.raises(InputError, match="a pipe that nobody has opened to write"):
        oomproof.explain(fifo)


@pytest.mark.parametrize(("content", "told"), [(b"\x80\x04}.", "memory snapshot"), (b"\x1f\x8b\x08\0", "compressed")])
def test_what_is_no_text_is_told(fifo: Path, content: bytes, told: str) -> None:
    writer = write_later(fifo, content, 0.0)
    with pytest.raises(InputError, match=told):
        oomproof.explain(fifo)
    writer.join()
    command = [sys.executable, "-m", "oomproof", "explain", "-"]
    ran = subprocess.run(command, input=content, capture_output=True, check=False)
    assert (ran.returncode, ran.stderr.count(b"\n")) == (1, 1)
    assert told in ran.stderr.decode()


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="a device without end")
@pytest.mark.parametrize("name", ["train.log", "snapshot.pickle"])
def test_a_link_to_a_device_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).symlink_to("/dev/zero")
    with pytest.raises(InputError, match="a device, which has no end"):
        oomproof.explain(tmp_path / name)


def _read_waiting_messages() -> None:
    """What the kernel said and nobody has read yet would be content: that of a machine just started, for one."""
    with contextlib.suppress(PermissionError, BlockingIOError):
        descriptor = os.open("/proc/kmsg", os.O_RDONLY | os.O_NONBLOCK)
        try:
            while os.read(descriptor, 1 << 16):
                pass
        finally:
            os.close(descriptor)


@pytest.mark.skipif(not Path("/proc/kmsg").exists(), reason="a regular file that waits for content")
@pytest.mark.parametrize(
    "words",
    [
        ("explain", "train.log"),
        ("check", "x.pickle", "--on", "8GiB"),
        ("check", "x.timeline", "--on", "8GiB"),
        ("check", "x.ipynb", "--on", "8GiB"),
        ("check", "x.config", "--on", "8GiB"),
        ("data", "x.json"),
    ],
    ids=lambda words: words[1],
)
def test_files_of_the_system_that_wait_are_refused(tmp_path: Path, words: tuple[str, ...]) -> None:
    """Or not opened at all, for whoever may not read them."""
    _read_waiting_messages()
    (tmp_path / words[1]).symlink_to("/proc/kmsg")
    command = [sys.executable, "-m", "oomproof", *words]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=30, check=False)
    last = ran.stderr.splitlines()[-1]
    assert (ran.returncode, "internal error" in ran.stderr) == (1, False), ran.stderr
    assert last.startswith("oomproof: ") and words[1] in last
