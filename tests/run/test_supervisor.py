"""oomproof run: real commands that run out of memory, fail otherwise, are killed, or leave children behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import deque
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from oomproof.cli import main
from oomproof.run.supervisor.flags import apply_plan, fewer_workers, flags_of_script, smaller
from oomproof.run.supervisor.output import LONGEST, Tail
from thorough import thorough_but

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals and process groups of POSIX")

TRAIN = """
import argparse, json, os, sys, time
parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=16)
FLAG
parser.add_argument("--resume", default="")
arguments = parser.parse_args()
open("starts", "a").write(" ".join(sys.argv[1:]) + "\\n")
if arguments.batch_size > 4:
    sys.exit("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of "
             "7.76 GiB of which 1.20 GiB is free.")
print("trained with", arguments.batch_size)
"""
ACCUMULATES = 'parser.add_argument("--accumulate", type=int, default=1)'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> int:
    return main(["run", *arguments])


def test_a_batch_too_large_is_halved_until_it_fits(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "train.py").write_text(TRAIN.replace("FLAG", ACCUMULATES))
    assert run("--resume-with", "--resume last", "--", sys.executable, "train.py", "--batch-size", "16") == 0
    starts = (folder / "starts").read_text().splitlines()
    assert starts == [
        "--batch-size 16",
        "--batch-size 8 --accumulate 2 --resume last",
        "--batch-size 4 --accumulate 4 --resume last",
    ]
    out, err = capfd.readouterr()
    assert "trained with 4" in out
    assert "--batch-size 16 -> 8, --accumulate 2: as many images an update, with --resume last" in err
    assert "done after 3 starts" in err


def test_another_effective_batch_is_never_silent(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "train.py").write_text(TRAIN.replace("FLAG", ""))
    assert run("--", sys.executable, "train.py", "--batch-size=8") == 0
    assert "AN UPDATE NOW HAS 4 IMAGES, NOT 8" in capfd.readouterr().err


def test_images_an_update_are_told_against_the_users_own(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "train.py").write_text(TRAIN.replace("FLAG", ""))
    assert run("--", sys.executable, "train.py", "--batch-size=16") == 0
    err = capfd.readouterr().err
    assert "AN UPDATE NOW HAS 8 IMAGES, NOT 16" in err and "AN UPDATE NOW HAS 4 IMAGES, NOT 16" in err


def test_it_gives_up_with_the_diagnosis(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "train.py").write_text(TRAIN.replace("FLAG", "").replace("> 4", "> 0"))
    assert run("--tries", "2", "--", sys.executable, "train.py", "--batch-size=64") == 1
    assert len((folder / "starts").read_text().splitlines()) == 3
    assert "gave up after 3 starts: device memory" in capfd.readouterr().err
    (folder / "starts").unlink()
    assert run("--", sys.executable, "train.py", "--batch-size=2") == 1
    assert len((folder / "starts").read_text().splitlines()) == 2
    assert "no flag of the command can be made thriftier" in capfd.readouterr().err


@pytest.mark.parametrize(
    "failing",
    ["raise ValueError('labels must be below 80')", "import sys; sys.exit(3)", "import no_such_module", "1/0"],
)
def test_other_errors_end_it_at_once(failing: str, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "train.py").write_text(f"open('starts', 'a').write('x')\n{failing}\n")
    assert run("--", sys.executable, "train.py", "--batch-size", "16") in (1, 3)
    assert (folder / "starts").read_text() == "x"
    assert "memory has no part in" in capfd.readouterr().err


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="RLIMIT_DATA is Linux's")
def test_a_real_shortage_of_host_memory(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "train.py").write_text(
        "import resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_DATA, (1 << 29, 1 << 29))\n"
        "size = int(sys.argv[2])\n"
        "data = [bytearray(64 << 20) for _ in range(size)]\n"
    )
    assert run("--", sys.executable, "train.py", "--batch-size", "16") == 0
    assert "host memory" in capfd.readouterr().err


COUNTING = """
import json, os, pathlib, time
pathlib.Path("pid.new").write_text(str(os.getpid()))
os.replace("pid.new", "pid")
state = pathlib.Path("state.json")
now = json.loads(state.read_text()) if state.exists() else {"step": 0, "weights": [1.0, 2.0, 3.0]}
while now["step"] < 600:
    now["weights"] = [(w * 1.01 + now["step"]) % 7.3 for w in now["weights"]]
    now["step"] += 1
    pathlib.Path("state.new").write_text(json.dumps(now))
    os.replace("state.new", "state.json")
    time.sleep(0.01)
"""


@pytest.mark.thorough
def test_killed_at_any_moment_it_goes_on_where_it_was(folder: Path) -> None:
    """kill -9 twenty times: the result is that of the undisturbed training."""
    (folder / "train.py").write_text(COUNTING)
    subprocess.run([sys.executable, "train.py"], check=True)
    undisturbed = (folder / "state.json").read_text()
    (folder / "state.json").unlink()
    (folder / "pid").unlink()
    supervisor = subprocess.Popen(
        [sys.executable, "-m", "oomproof", "run", "--tries", "100", "--", sys.executable, "train.py"],
        stderr=subprocess.PIPE,
        text=True,
    )
    kills, seen = 0, ""
    while supervisor.poll() is None and kills < 20:
        pid = (folder / "pid").read_text() if (folder / "pid").exists() else ""
        if pid and pid != seen:
            seen, kills = pid, kills + 1
            time.sleep(0.013 * (kills % 7))
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        time.sleep(0.005)
    _, err = supervisor.communicate(timeout=120)
    assert supervisor.returncode == 0, err
    assert kills == 20 and err.count("killed by signal 9") == 20
    assert (folder / "state.json").read_text() == undisturbed


def test_signals_are_passed_on_and_no_child_stays(folder: Path) -> None:
    (folder / "train.py").write_text(
        "import os, signal, subprocess, sys, time\n"
        "worker = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "def end(number, frame):\n"
        "    open('got', 'w').write(str(number)); sys.exit(5)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "open('worker', 'w').write(str(worker.pid))\n"
        "print('ready', flush=True)\n"
        "time.sleep(600)\n"
    )
    supervisor = subprocess.Popen(
        [sys.executable, "-m", "oomproof", "run", "--", sys.executable, "train.py"], stdout=subprocess.PIPE, text=True
    )
    assert supervisor.stdout is not None
    assert supervisor.stdout.readline() == "ready\n"
    worker = int((folder / "worker").read_text())
    supervisor.send_signal(signal.SIGTERM)
    supervisor.communicate(timeout=60)
    assert supervisor.returncode == 5
    assert (folder / "got").read_text() == str(int(signal.SIGTERM))
    assert not _alive(worker)


def test_what_nohup_ignores_stays_ignored(folder: Path) -> None:
    """The end of a terminal must not end a training that was started to outlive it."""
    (folder / "train.py").write_text("print('ready', flush=True)\ninput()\nprint('done', flush=True)\n")
    supervisor = subprocess.Popen(
        ["nohup", sys.executable, "-m", "oomproof", "run", "--", sys.executable, "train.py"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert supervisor.stdout is not None and supervisor.stdout.readline() == "ready\n"
    supervisor.send_signal(signal.SIGHUP)
    for child in psutil.Process(supervisor.pid).children():
        child.send_signal(signal.SIGHUP)
    time.sleep(0.5)
    said, _ = supervisor.communicate("\n", timeout=60)
    assert supervisor.returncode == 0 and said == "done\n"


LEAVING = """
import os, subprocess, sys, time
worker = [sys.executable, "-c", "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"]
children = [subprocess.Popen(worker), subprocess.Popen(worker, start_new_session=True)]
if (daemon := os.fork()) == 0:  # as daemons do: its parent is gone, its session its own
    os.setsid()
    if os.fork():
        os._exit(0)
    os.execv(worker[0], worker)
os.waitpid(daemon, 0)
print("ready", flush=True)
WHAT
"""


def nothing_is_left(folder: Path) -> bool:
    """Whatever was started here is in this folder; it may take a moment to be gone."""
    for _ in range(600):
        if not any(_lives_in(folder, process) for process in psutil.process_iter() if process.pid != os.getpid()):
            return True
        time.sleep(0.05)
    return False


def _lives_in(folder: Path, process: psutil.Process) -> bool:
    try:
        return process.cwd() == str(folder) and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the system must show environments")
@pytest.mark.parametrize("end", thorough_but(["kill"], ["kill", "done", "stop"]))
def test_nothing_outlives_the_supervisor(end: str, folder: Path) -> None:
    """Workers and daemons that ignore SIGTERM, where the command has ended, is stopped, or the supervisor is killed."""
    (folder / "train.py").write_text(LEAVING.replace("WHAT", "" if end == "done" else "time.sleep(600)"))
    supervisor = subprocess.Popen(
        [sys.executable, "-m", "oomproof", "run", "--", sys.executable, "train.py"], stdout=subprocess.PIPE, text=True
    )
    assert supervisor.stdout is not None
    assert supervisor.stdout.readline() == "ready\n"
    if end != "done":
        supervisor.send_signal(signal.SIGKILL if end == "kill" else signal.SIGINT)
    supervisor.communicate(timeout=100)
    assert nothing_is_left(folder)
    assert supervisor.returncode == {"kill": -9, "done": 0, "stop": 130}[end]


@pytest.mark.thorough
def test_a_command_that_does_not_want_to_end(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """One signal is passed on, and it may save a checkpoint as long as it likes; the third one kills."""
    (folder / "train.py").write_text(
        "import signal, time\n"
        "def no(number, frame): print(f'no {number}', flush=True)\n"
        "signal.signal(signal.SIGINT, no); signal.signal(signal.SIGTERM, no)\n"
        "print('ready', flush=True)\n"
        "while True: time.sleep(1)\n"
    )
    supervisor = subprocess.Popen(
        [sys.executable, "-m", "oomproof", "run", "--", sys.executable, "train.py"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert supervisor.stdout is not None and supervisor.stderr is not None
    assert supervisor.stdout.readline() == "ready\n"
    supervisor.send_signal(signal.SIGINT)
    assert supervisor.stdout.readline() == "no 2\n"
    assert "asked to end 10 s ago and still runs: Ctrl-C twice more kills it" in supervisor.stderr.readline()
    supervisor.send_signal(signal.SIGTERM)
    assert supervisor.stdout.readline() == "no 15\n"
    supervisor.send_signal(signal.SIGINT)
    supervisor.communicate(timeout=60)
    assert supervisor.returncode == 128 + signal.SIGKILL


@pytest.mark.thorough
@pytest.mark.parametrize("delay", [0.0, 0.1, 0.2, 0.4, 0.8, 1.6])
def test_an_interruption_at_any_moment_leaves_nothing(delay: float, folder: Path) -> None:
    (folder / "train.py").write_text(LEAVING.replace("WHAT", "time.sleep(600)"))
    supervisor = subprocess.Popen(
        [sys.executable, "-m", "oomproof", "run", "--", sys.executable, "train.py"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    time.sleep(delay)
    supervisor.send_signal(signal.SIGINT)
    supervisor.wait(timeout=100)
    assert nothing_is_left(folder)
    assert supervisor.returncode != 0  # 130 once our code is loaded


def _alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def test_a_progress_bar_comes_at_once_and_endless_lines_are_no_burden(folder: Path) -> None:
    """A hundred MB without an end of line, after a bar that waits for its reader."""
    (folder / "train.py").write_text(
        "import sys\n"
        "sys.stdout.write('\\r10%'); sys.stdout.flush()\n"
        "input()\n"
        "for _ in range(100): sys.stdout.write('x' * (1 << 20))\n"
        "print('\\r100%')\n"
        "sys.exit('torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB.')"
    )
    supervisor = subprocess.Popen(
        [sys.executable, "-m", "oomproof", "run", "--", sys.executable, "train.py"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert supervisor.stdin is not None and supervisor.stdout is not None
    assert supervisor.stdout.read(4) == b"\r10%"
    supervisor.stdin.write(b"\n")
    supervisor.stdin.flush()
    read, most = 0, 0
    while some := supervisor.stdout.read1():
        read += len(some)
        with suppress(psutil.Error):
            most = max(most, psutil.Process(supervisor.pid).memory_info().rss)
    _, err = supervisor.communicate(timeout=60)
    assert read == (100 << 20) + len("\r100%\n")
    assert 0 < most < 150 << 20
    assert b"no flag of the command can be made thriftier: device memory" in err


def test_the_end_of_output_as_a_person_sees_it() -> None:
    lines: deque[bytes] = deque(maxlen=3)
    tail = Tail(lines)
    for piece in (b"first\nsec", b"ond\r\n 1%\r 2%", b"\r 3%\nlast", b" line"):
        tail.add(piece)
    tail.end()
    assert list(lines) == [b"second", b" 3%", b"last line"]
    tail.add(b"y" * (3 * LONGEST))
    tail.end()
    assert len(lines[-1]) == LONGEST


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="orphans are adopted on Linux")
def test_orphans_that_have_ended_are_let_go(folder: Path) -> None:
    """A training that starts many short daemons does not fill the table of processes."""
    (folder / "train.py").write_text(
        "import os, time\n"
        "for _ in range(5):\n"
        "    if (child := os.fork()) == 0:\n"
        "        if os.fork() == 0: time.sleep(0.1)\n"
        "        os._exit(0)\n"
        "    os.waitpid(child, 0)\n"
        "print('ready', flush=True)\n"
        "input()\n"
    )
    supervisor = subprocess.Popen(
        [sys.executable, "-m", "oomproof", "run", "--", sys.executable, "train.py"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert supervisor.stdout is not None
    assert supervisor.stdout.readline() == b"ready\n"
    for _ in range(600):
        left = [child.status() for child in psutil.Process(supervisor.pid).children()]
        if len(left) == 2 and psutil.STATUS_ZOMBIE not in left:  # the command, and the last watch
            break
        time.sleep(0.05)
    supervisor.communicate(b"\n", timeout=60)
    assert len(left) == 2 and supervisor.returncode == 0


def test_what_cannot_be_started(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--", "no-such-command-anywhere") == 1
    assert "no-such-command-anywhere cannot be started: No such file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("train.py --batch-size 16 --accumulate 2", "train.py --batch-size 8 --accumulate 4"),
        ("train_net.py SOLVER.IMS_PER_BATCH 16", "train_net.py SOLVER.IMS_PER_BATCH 8"),
        ("train.py --batch_size=7", "train.py --batch_size=4"),
        ("yolo train batch=16 imgsz=640", "yolo train batch=8 imgsz=640"),
        ("train.py -b 2", "train.py -b 1"),
        ("train.py -b 1", None),
        ("train.py --batch-size auto", None),
        ("train.py", None),
        ("train.py --batch-size", None),
    ],
)
def test_flags(command: str, expected: str | None) -> None:
    found = smaller(command.split())
    assert (" ".join(found.command) if found else None) == expected


@pytest.mark.parametrize(
    ("declared", "command", "expected", "same"),
    [
        ("default=4", "--batch-size 16", "--batch-size 8 --accumulate 8", True),
        ("type=int, default=1", "--batch-size 16", "--batch-size 8 --accumulate 2", True),
        ("type=int", "--batch-size 16", "--batch-size 8", False),
        ("default=CONSTANT", "--batch-size 16", "--batch-size 8", False),
        ("default=True", "--batch-size 16", "--batch-size 8", False),
        ("default=4", "--batch-size 7", "--batch-size 4", False),
        ("default=4", "--batch-size 7 --accumulate 2", "--batch-size 4 --accumulate 2", False),
        ("default=4", "", "--batch-size 12 --accumulate 8", True),
    ],
)
def test_what_a_script_does_by_default_counts(
    declared: str, command: str, expected: str, same: bool, folder: Path
) -> None:
    """A script that accumulates 4 batches by itself would have half the images with ``--accumulate 2``."""
    (folder / "train.py").write_text(
        f'parser.add_argument("--accumulate", {declared})\nparser.add_argument("-b", "--batch-size", default=24)\n'
    )
    words = ["train.py", *command.split()]
    found = smaller(words, flags_of_script(words))
    assert found is not None and " ".join(found.command[1:]) == expected
    assert found.same_batch == same and ("AN UPDATE NOW HAS" in found.says) != same


def test_workers_and_plans() -> None:
    found = fewer_workers(["train.py", "--workers", "8"])
    assert found is not None and found.command == ["train.py", "--workers", "4"] and found.same_batch
    assert fewer_workers(["train.py", "--workers", "0"]) is None
    given = ["train.py", "--batch-size", "16"]
    assert apply_plan(given, 4, 4, {"--accumulate": None}).command == [
        "train.py",
        "--batch-size",
        "4",
        "--accumulate",
        "4",
    ]  # type: ignore[union-attr]
    assert apply_plan(given, 4, 4, {}) is None  # half a plan would be another training
    assert os.environ.get("OOMPROOF_BUDGET") is None
