"""No child outlives its parent, and no folder stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

CHILD = (
    "import sys, time; from pathlib import Path; from oomproof.trace.xla.parent import end_with_parent\n"
    "folder = Path(sys.argv[1]); end_with_parent(folder); (folder / 'ready').touch(); time.sleep(600)"
)
PARENT = (
    "import subprocess, sys\n"
    "child = subprocess.Popen([sys.executable, '-c', sys.argv[1], sys.argv[2]], stdin=subprocess.PIPE)\n"
    "print(child.pid, flush=True); child.wait()"
)


def until(holds: object, seconds: float = 60.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if holds():  # type: ignore[operator]
            return True
        time.sleep(0.05)
    return False


def is_running(process: int) -> bool:
    """Whether it runs; a zombie that nobody has waited for does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="looks for the child in /proc")
@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_the_child_ends_with_its_parent(tmp_path: Path, end: signal.Signals) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    with subprocess.Popen([sys.executable, "-c", PARENT, CHILD, str(folder)], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert until((folder / "ready").exists)
        assert is_running(child)
        os.kill(parent.pid, end)
    assert until(lambda: not is_running(child))
    assert not folder.exists()
