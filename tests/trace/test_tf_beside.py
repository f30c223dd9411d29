"""A part of a trace in a fork: the same answer, whatever becomes of the fork, and nothing left behind."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from oomproof.trace.tensorflow import beside
from oomproof.trace.tensorflow.beside import Beside

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2, reason="forks want Linux and a second core"
)


def children() -> set[str]:
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    before, files = children(), psutil.Process().num_fds()
    yield
    assert children() <= before and psutil.Process().num_fds() == files


def test_it_is_computed_in_another_process_with_all_that_this_one_has() -> None:
    table = {"a": bytes(3 << 20)}
    with Beside(lambda: (os.getpid(), table["a"])) as found:
        pid, answer = found.result()
    assert pid != os.getpid() and answer == table["a"]


def test_both_go_on_at_once() -> None:
    """The fork writes before this process asks for its answer."""
    answer, into = os.pipe()
    with Beside(lambda: os.write(into, b"here")) as found:
        begun = select.select([answer], [], [], 60.0)[0]
        assert begun and found.result() == 4
    os.close(answer)
    os.close(into)


def test_without_a_fork_it_is_computed_when_it_is_asked_for() -> None:
    done: list[int] = []
    with Beside(lambda: done.append(os.getpid()), fork=False) as found:
        assert not done
        found.result()
    assert done == [os.getpid()]


def test_a_fork_that_fails_or_dies_costs_time_alone() -> None:
    here = os.getpid()

    def fail_elsewhere(how: int) -> int:
        if os.getpid() != here:
            if how:
                os.kill(os.getpid(), how)
            raise RuntimeError
        return how

    for how in (0, signal.SIGKILL):
        with Beside(lambda how=how: fail_elsewhere(how)) as found:
            assert found.result() == how


def test_a_fork_that_waits_forever_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beside, "LONGEST", 0.3)
    here = os.getpid()
    with Beside(lambda: os.getpid() == here or time.sleep(60)) as found:
        assert found.result() is True


def test_an_error_is_that_of_this_process() -> None:
    def fail() -> None:
        raise ValueError(os.getpid())

    with Beside(fail) as found, pytest.raises(ValueError, match=str(os.getpid())):
        found.result()


def test_what_nobody_asks_for_is_ended() -> None:
    begin = time.monotonic()
    with Beside(lambda: time.sleep(60)):
        assert len(children()) > 0
    assert time.monotonic() - begin < 10


PARENT = """
import os, time
from oomproof.trace.tensorflow.beside import Beside
begun = Beside(lambda: time.sleep(600))
print(begun._pid, flush=True)
time.sleep(600)
"""


def test_a_fork_ends_with_its_parent() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        fork = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    psutil.wait_procs([fork], timeout=10)
    assert not fork.is_running() or fork.status() == psutil.STATUS_ZOMBIE
