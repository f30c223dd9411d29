"""Progress: a bar on a terminal, short lines elsewhere, nothing where it is not wanted."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from oomproof.cli.screen import at_long_work, at_work, complain, show

pty = pytest.importorskip("pty", reason="terminals as Unix has them")

WORK = """
import time
from oomproof.cli.screen import at_long_work, at_work, complain, show
with at_long_work({quiet}) as say:
    say("opening the job", 0.0)
    say("looking at [batch] 4 x 4", 0.5)
    print("the user's own words")
    say("a step back", 0.25)
    time.sleep(0.3)
print("report")
"""


def on_a_terminal(code: str) -> tuple[str, str]:
    """What the code writes to stdout, and what a terminal on stderr shows of it."""
    screen, terminal = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "70"}
    try:
        command = [sys.executable, "-c", code]
        ran = subprocess.run(command, stdout=subprocess.PIPE, stderr=terminal, env=environment, check=True)
        os.set_blocking(screen, False)
        try:
            shown = os.read(screen, 1 << 20).decode()
        except BlockingIOError:
            shown = ""
    finally:
        os.close(terminal)
        os.close(screen)
    return ran.stdout.decode(), re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown)


def test_a_bar_on_a_terminal() -> None:
    out, shown = on_a_terminal(WORK.format(quiet=False))
    assert out == "report\n"
    assert "looking at [batch] 4 x 4" in shown or "a step back" in shown
    assert "50 %" in shown
    assert "25 %" not in shown, "the bar went backwards"
    assert "the user's own words" in shown


def test_nothing_when_quiet() -> None:
    out, shown = on_a_terminal(WORK.format(quiet=True))
    assert out == "report\n"
    assert shown.split() == ["the", "user's", "own", "words"]


def test_lines_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    with at_long_work(quiet=False) as say:
        for part in range(4):
            say("tracing" if part < 3 else "done", part / 4)
    out, err = capsys.readouterr()
    assert (out, err) == ("", "tracing\ndone\n")


def test_what_a_terminal_would_obey_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    name = "a\x1b[2J\x1b]0;title\x9b31m.yaml"
    told = r"a\x1b[2J\x1b]0;title\x9b31m.yaml"
    show(name)
    complain(name)
    with at_work(quiet=False) as say:
        say(f"opening {name}")
    assert capsys.readouterr() == (f"{told}\n", f"oomproof: {told}\nopening {told}\n")


def test_colours_of_a_report_stay(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from rich.text import Text

    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    show(Text("red", style="red"))
    assert capsys.readouterr().out == "\x1b[31mred\x1b[0m\n"
