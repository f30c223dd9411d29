"""A script that does what it should not: one clear line, within its patience, and nothing of it is left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

import psutil
import pytest

from oomproof.cli import main
from oomproof.errors import JobError
from oomproof.sources.script.command import read_command
from oomproof.sources.script.ending import TAG
from oomproof.sources.script.running import ScriptRun, run_script
from oomproof.trace.request import be_silent


def refused(tmp_path: Path, source: str, patience: int = 60, arguments: str = "") -> str:
    (tmp_path / "train.py").write_text(source)
    with pytest.raises(JobError) as raised:
        run_script(ScriptRun(read_command(f"python train.py {arguments}"), patience=patience), be_silent)
    assert "\n" not in str(raised.value)
    assert not left_running()
    return str(raised.value)


def left_running() -> list[int]:
    """Processes of a script that was started in this folder."""
    found = []
    for process in psutil.process_iter():
        try:
            if TAG in process.environ() and process.cwd() == str(Path.cwd()):
                found.append(process.pid)
        except (psutil.Error, OSError):
            pass
    return found


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_hangs(tmp_path: Path) -> None:
    began = time.monotonic()
    said = refused(tmp_path, "import time\nprint('waiting for a lock', flush=True)\ntime.sleep(1000)", patience=3)
    assert time.monotonic() - began < 20
    assert "within 3 s" in said and "waiting for a lock" in said and "--patience" in said


def test_ignores_signals_and_leaves_its_session(tmp_path: Path) -> None:
    """A daemon: two forks, a session of its own, deaf to every signal that it can be deaf to."""
    source = """
import os, signal, sys, time
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(1000)
    os._exit(0)
time.sleep(1000)
"""
    assert "within 3 s" in refused(tmp_path, source, patience=3)


@pytest.mark.parametrize("then", ["time.sleep(1000)", "sys.exit(3)"])
def test_starts_what_knows_nothing_of_us(tmp_path: Path, then: str) -> None:
    """A program in a session of its own, with an empty environment, whose parent is gone."""
    source = f"""
import os, subprocess, sys, time
if os.fork() == 0:
    words = [sys.executable, "-c", "import time; time.sleep(1000)", {str(tmp_path)!r}]
    subprocess.Popen(words, env={{}}, start_new_session=True)
    os._exit(0)
os.wait()
{then}
"""
    refused(tmp_path, source, patience=3)
    commands = [process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])]
    assert not [each for each in commands if str(tmp_path) in each and "-c" in each]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("import os\nos.write(1, bytes(range(256)))\nos.write(2, b'\\x1b]0;a\\x07\\x1b[31m\\xff')\nexit(3)", "code 3"),
        ("import sys\nsys.exit('bad\\nconfig\\x1b[2J')", "bad config"),
        ("raise ValueError('\\ud800\\u202e' + 'x' * 100000)", "ValueError: xxx"),
        ("raise KeyboardInterrupt", "raised KeyboardInterrupt before its second step"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)", "within 3 s"),
        ("import os, time\nos.closerange(0, 100)\ntime.sleep(1000)", "within 3 s"),
        ("import os\nfor n in range(3, 9):\n try: os.write(n, b'\\xff' * 9999)\n except OSError: pass", "without a"),
        ("import signal, time\nsignal.alarm(1)\ntime.sleep(1000)", "killed by signal 14"),
        ("import atexit, time\natexit.register(lambda: time.sleep(1000))", "without a training step"),
        ("import threading, time\nthreading.Thread(target=lambda: time.sleep(1000)).start()", "without a training"),
    ],
)  # fmt: skip
def test_one_plain_line_whatever_it_does(tmp_path: Path, source: str, said: str) -> None:
    line = refused(tmp_path, source, patience=3 if "within" in said else 60)
    assert said in line and line.isprintable() and len(line) < 1000


def test_forks_and_ends(tmp_path: Path) -> None:
    said = refused(tmp_path, "import os, time\nif os.fork() == 0:\n    time.sleep(1000)\nos._exit(3)")
    assert "os._exit(3)" in said


def test_bad_arguments(tmp_path: Path) -> None:
    source = "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--lr')\nparser.parse_args()"
    said = refused(tmp_path, source, arguments="--learning-rate 3")
    assert "exit code 2" in said and "unrecognized arguments: --learning-rate 3" in said


def test_missing_file(tmp_path: Path) -> None:
    said = refused(tmp_path, "data = open('annotations.json').read()")
    assert "FileNotFoundError" in said and "annotations.json" in said and "train.py:1" in said


def test_wants_the_network(tmp_path: Path) -> None:
    said = refused(tmp_path, "import urllib.request\nurllib.request.urlopen('https://example.com/weights.pt')")
    assert "example.com" in said and "no network" in said


def test_prints_a_gigabyte(tmp_path: Path) -> None:
    source = "import sys\nfor _ in range(1024):\n    sys.stdout.write('x' * (1 << 20))\nraise ValueError('done')"
    said = refused(tmp_path, source)
    assert "ValueError: done" in said and len(said) < 1000


def test_never_trains(tmp_path: Path) -> None:
    assert "without a training step: it never imported PyTorch" in refused(tmp_path, "print('hello')")


def test_is_killed(tmp_path: Path) -> None:
    assert "killed by signal 9" in refused(tmp_path, "import os\nos.kill(os.getpid(), 9)")


def test_asks_at_the_keyboard(tmp_path: Path) -> None:
    assert "EOFError" in refused(tmp_path, "input('go on? ')")


def test_syntax_error(tmp_path: Path) -> None:
    said = refused(tmp_path, "def train(:\n    pass")
    assert "SyntaxError" in said and "train.py:1" in said


@pytest.mark.slow
def test_trains_on_the_cpu(tmp_path: Path) -> None:
    source = """
import torch
net = torch.nn.Linear(3, 3)
optimizer = torch.optim.SGD(net.parameters())
for _ in range(1000):
    net(torch.rand(2, 3)).sum().backward()
    optimizer.step()
"""
    said = refused(tmp_path, source)
    assert "trains on the CPU" in said and "train.py:7" in said


def test_writes_stay_away_from_the_folder(tmp_path: Path) -> None:
    """What the script writes it finds again; nobody else does."""
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "log.txt").write_text("first\n")
    (tmp_path / "results.csv").write_text("a,b\n")
    source = """
import os, pathlib, shutil, subprocess
os.makedirs("runs/exp/weights", exist_ok=True)
with open("runs/exp/weights/last.pt", "wb") as file:
    file.write(b"x")
assert os.listdir("runs/exp") == ["weights"] and os.path.getsize("runs/exp/weights/last.pt") == 1
assert [p.name for p in pathlib.Path("runs").glob("*/*/*")] == ["last.pt"]
with open("old/log.txt", "a") as file:
    file.write("second\\n")
assert open("old/log.txt").read() == "first\\nsecond\\n"
os.replace("runs/exp/weights/last.pt", "runs/exp/best.pt")
assert os.path.exists("runs/exp/best.pt") and not os.path.exists("runs/exp/weights/last.pt")
os.remove("results.csv")
assert not os.path.exists("results.csv") and "results.csv" not in os.listdir(".")
shutil.rmtree("old")
assert not os.path.exists("old/log.txt")
pathlib.Path("results.csv").write_text("c")
assert pathlib.Path("results.csv").read_text() == "c"
try:
    os.mkdir("nowhere/below")
except FileNotFoundError:
    print("as it should")
subprocess.run(["sh", "-c", "echo from a shell > shell.txt; rm -f old/log.txt"])
raise RuntimeError("the end")
"""
    said = refused(tmp_path, source)
    assert "RuntimeError: the end" in said
    (tmp_path / "train.py").unlink()
    found = {path.name: path.read_text() for path in tmp_path.rglob("*") if path.is_file()}
    assert found == {"log.txt": "first\n", "results.csv": "a,b\n"}


def test_no_script(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "-q", "--on", "8GiB", "--", "python", "nowhere.py"]) == 1
    assert capsys.readouterr().err == (
        "oomproof: there is no file nowhere.py: check the path, from the folder that you are in\n"
    )
    assert main(["check", "-q", "--on", "8GiB", "--", "python"]) == 1
    assert capsys.readouterr().err.startswith("oomproof: ")


def test_killed_parent_takes_the_script_along(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import time\ntime.sleep(1000)")
    words = [sys.executable, "-m", "oomproof", "check", "--on", "8GiB", "--", "python", "train.py"]
    parent = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 60
    while not left_running() and time.monotonic() < until:
        time.sleep(0.2)
    time.sleep(1)  # past its first lines
    assert left_running()
    parent.kill()
    parent.wait()
    while left_running() and time.monotonic() < until:
        time.sleep(0.2)
    assert not left_running()


def test_folders_of_runs_that_were_killed_are_removed_by_a_later_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    yesterday = time.time() - 25 * 3600
    for name, parent, made in (("old", gone.pid, yesterday), ("new", gone.pid, time.time()), ("runs", 1, yesterday)):
        request = tmp_path / f"oomproof-script-{name}" / "request.json"
        request.parent.mkdir()
        request.write_text(json.dumps({"parent": parent}))
        os.utime(request, (made, made))
    (tmp_path / "oomproof-script-other").write_text("a file")
    refused(tmp_path, "raise RuntimeError")
    left = sorted(path.name for path in tmp_path.glob("oomproof-script-*"))
    assert left == ["oomproof-script-new", "oomproof-script-other", "oomproof-script-runs"]


def test_what_its_python_lacks_is_told_with_that_python(tmp_path: Path) -> None:
    """The command may name an environment of its own, in which nothing of ours is installed."""
    venv.create(tmp_path / "other", symlinks=True)
    (tmp_path / "train.py").write_text("import torch")
    python = tmp_path / "other" / "bin" / "python"
    with pytest.raises(JobError) as raised:
        run_script(ScriptRun(read_command(f"{python} train.py"), patience=60), be_silent)
    said = str(raised.value)
    assert said.startswith("train.py raised ModuleNotFoundError: No module named 'torch'")
    assert said.endswith(f"; it was run with {python}") and "pip install" not in said


def test_a_script_that_can_be_read_without_its_package_is_told_so(tmp_path: Path) -> None:
    venv.create(tmp_path / "other", symlinks=True)
    (tmp_path / "train.py").write_text("from detectron2.config import get_cfg")
    python = tmp_path / "other" / "bin" / "python"
    with pytest.raises(JobError, match=r"Without detectron2, `oomproof check FILE.py` reads .*nbconvert --to script"):
        run_script(ScriptRun(read_command(f"{python} train.py"), patience=60), be_silent)


def test_tensor_types_of_the_gpu(tmp_path: Path) -> None:
    """As the first detectors in PyTorch make masks, and move their grids."""
    (tmp_path / "train.py").write_text(
        "import torch\n"
        "net = torch.nn.Linear(64, 64).cuda()\n"
        "optimizer = torch.optim.SGD(net.parameters(), 0.1)\n"
        "for _ in range(9):\n"
        "    out = net(torch.rand(8, 64).type(torch.cuda.FloatTensor))\n"
        "    Kind = torch.cuda.FloatTensor if out.is_cuda else torch.FloatTensor\n"
        "    grid = torch.arange(64)\n"
        "    parts = Kind(8, 64).fill_(1), grid.type(Kind), grid.type_as(out), out.new(8, 64), out.new_tensor(2)\n"
        "    assert all(isinstance(part, Kind) and torch.get_device(part) == 0 for part in parts)\n"
        "    assert torch.rand(2).type(Kind).type(torch.FloatTensor).get_device() == -1\n"
        "    loss = sum((out * part).sum() for part in parts)\n"
        "    optimizer.zero_grad(); loss.backward(); optimizer.step()\n"
    )
    step = run_script(ScriptRun(read_command("python train.py"), patience=120), be_silent)
    assert step.about.details["steps"] >= 2
