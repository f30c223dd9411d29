"""What only a process of its own can show: imports, exit codes, closed pipes, interrupts."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from oomproof import cli

FRAMEWORKS = ("torch", "torchvision", "tensorflow", "keras")


def oomproof(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "oomproof", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=False,
    )


@pytest.mark.parametrize("arguments", [["--help"], ["check", "--help"], ["fit", "--help"], ["--version"], ["gpus"]])
def test_imports_no_framework(arguments: list[str]) -> None:
    code = (
        f"import sys; from oomproof.cli import main; code = main({arguments!r}); "
        f"print([name for name in {FRAMEWORKS!r} if name in sys.modules], file=sys.stderr); sys.exit(code)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr.strip()) == (0, "[]")
    assert ran.stdout


def test_help_shows_examples_and_every_command() -> None:
    text = oomproof("--help").stdout
    assert "oomproof check torchvision:" in text
    assert all(f"\n  {command} " in text for command in ("check", "data", "explain", "fit", "gpus"))
    assert oomproof().stdout == text


def test_exit_codes(step: str) -> None:
    assert oomproof("check", step, "--on", "8GiB").returncode == 0
    assert oomproof("check", step, "--on", "2GiB").returncode == 2
    assert oomproof("check", "no-such.timeline", "--on", "2GiB").returncode == 1


def test_narrow_plain_and_ascii(step: str) -> None:
    text = oomproof("check", step, "--on", "8GiB", COLUMNS="60", NO_COLOR="1", PYTHONIOENCODING="ascii").stdout
    assert text.isascii()
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 60
    assert not any(line != line.rstrip() for line in text.splitlines())


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_reader_who_leaves_is_no_failure(step: str, form: list[str]) -> None:
    gone, pipe = os.pipe()
    os.close(gone)
    try:
        command = [sys.executable, "-m", "oomproof", "check", step, "--on", "2GiB", "-q", *form]
        ran = subprocess.run(command, stdout=pipe, stderr=subprocess.PIPE, text=True, check=False)
    finally:
        os.close(pipe)
    assert (ran.returncode, ran.stderr) == (2, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full, Linux only")
@pytest.mark.parametrize(
    "words", ["check {step} --on 8GiB --json", "check {step} --on 8GiB -q", "gpus", "check --help", "--version"]
)
def test_a_full_disk_is_one_line(step: str, words: str) -> None:
    command = [sys.executable, "-m", "oomproof", *words.format(step=step).split()]
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (ran.returncode, ran.stderr.count("\n")) == (1, 1)
    assert "cannot write the report" in ran.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full, Linux only")
@pytest.mark.parametrize("where", ["2>&-", "2>/dev/full", "<&- 2>&-"])
def test_nobody_need_hear_of_the_progress(step: str, tmp_path: Path, where: str) -> None:
    """Daemons close what they do not use; the answer and the exit code stay."""
    command = f"{shlex.quote(sys.executable)} -m oomproof check {shlex.quote(step)} --on 2GiB --save s.timeline {where}"
    environment = {**os.environ, "PYTHONPATH": str(Path(cli.__file__).parents[2])}
    ran = subprocess.run(["sh", "-c", command], stdout=subprocess.PIPE, cwd=tmp_path, env=environment, check=False)
    assert ran.returncode == 2 and ran.stdout.startswith(b"Verdict")
    assert oomproof("check", str(tmp_path / "s.timeline"), "--on", "2GiB", "-q").returncode == 2


def test_too_little_memory_for_the_command_is_one_line(
    step: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def allocate(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("oomproof.sources.open_job", allocate)
    assert cli.main(["check", step, "--on", "2GiB", "-q"]) == 1
    out, err = capsys.readouterr()
    assert not out and err.count("\n") == 1 and "too little memory" in err


@pytest.mark.parametrize(
    ("number", "code", "word"),
    [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated"), (signal.SIGHUP, 129, "terminated")],
)
def test_a_signal_leaves_one_line_and_no_file(tmp_path: Path, number: int, code: int, word: str) -> None:
    (tmp_path / "train.py").write_text(
        "import pathlib, time, tempfile\n"
        "with tempfile.TemporaryDirectory(dir='.'):\n"
        "    pathlib.Path('started').touch()\n"
        "    time.sleep(60)\n\n"
        "def job():\n    return None\n"
    )
    command = [sys.executable, "-m", "oomproof", "check", "train.py:job", "--on", "8GiB", "--save", "a.timeline", "-q"]
    # PYTHONPATH may be relative, and the process has another working directory.
    environment = {**os.environ, "PYTHONPATH": str(Path(cli.__file__).parents[2])}
    usual = signal.signal(number, signal.SIG_DFL)  # under nohup it is ignored, and children would ignore it too
    process = subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    signal.signal(number, usual)
    while not (tmp_path / "started").exists() and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (code, "", f"oomproof: {word}\n")
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "__pycache__") == ["started", "train.py"]
