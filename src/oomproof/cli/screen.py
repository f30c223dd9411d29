"""Where the commands write: reports to stdout, complaints and progress to stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING

from oomproof.errors import OomproofError

if TYPE_CHECKING:
    from rich.console import RenderableType

WIDEST = 120
"""columns; longer lines are hard to read however wide the screen"""


def show(report: RenderableType) -> None:
    """A report on stdout, as wide as the terminal, in colour only where there is one."""
    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False)
    console.width = min(console.width, WIDEST)
    with console.capture() as captured:
        console.print(report)
    write("\n".join(line.rstrip() for line in captured.get().splitlines()) + "\n")


def write(text: str) -> None:
    """Text on stdout; a reader who has gone (``| head -1``) is no failure of ours."""
    if sys.stdout is None:
        raise OomproofError("cannot write the report: stdout is closed")
    encoding = sys.stdout.encoding or "utf-8"
    try:
        sys.stdout.write(text.encode(encoding, "replace").decode(encoding))
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes stdout once more at exit, so the descriptor has to lead somewhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise OomproofError(f"cannot write the report: {error.strerror}") from error


def complain(message: str) -> None:
    """One line on stderr, whatever the message has inside."""
    line = " ".join(f"oomproof: {message}".split())
    encoding = sys.stderr.encoding or "utf-8"
    print(line.encode(encoding, "replace").decode(encoding), file=sys.stderr)


@contextmanager
def at_work(quiet: bool) -> Iterator[Callable[[str], None]]:
    """While a user's code runs: its own prints go to stderr, so that stdout holds the report alone."""
    with progress(quiet) as say, redirect_stdout(sys.stderr):
        yield say


@contextmanager
def progress(quiet: bool) -> Iterator[Callable[[str], None]]:
    """What is being done now: a spinner on a terminal, short lines elsewhere, nothing if ``quiet``."""
    if quiet:
        yield lambda _: None
    elif sys.stderr.isatty():
        from rich.console import Console

        with Console(stderr=True, highlight=False, markup=False).status("starting") as status:
            yield status.update
    else:
        yield _lines()


def _lines() -> Callable[[str], None]:
    """A line whenever the work changes: a log is read later, and by people."""
    last = ""

    def line(doing: str) -> None:
        nonlocal last
        if doing != last:
            last = doing
            print(doing, file=sys.stderr, flush=True)

    return line
