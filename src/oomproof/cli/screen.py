"""Where the commands write: reports to stdout, complaints and progress to stderr."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from oomproof.errors import OomproofError

if TYPE_CHECKING:
    from rich.console import RenderableType

WIDEST = 120
"""columns; longer lines are hard to read however wide the screen"""
NARROWEST, USUAL = 20, 80
"""columns; COLUMNS=0, as some terminals in an editor say, means that nobody knows"""
_COMMANDS = re.compile(r"\x1b(?!\[[\d;]*m)|[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f]")
"""what a terminal obeys, but for colours and the ends of lines; names of files may hold such"""


def show(report: RenderableType) -> None:
    """A report on stdout, as wide as the terminal, in colour only where there is one."""
    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False)
    console.width = min(console.width, WIDEST) if console.width >= NARROWEST else USUAL
    try:
        with console.capture() as captured:
            console.print(report)
    except OSError as error:  # rich flushes the screen even where it writes nothing to it
        raise cannot_write(error) from error
    harmless = _COMMANDS.sub(_escape, captured.get())
    write("\n".join(line.rstrip() for line in harmless.splitlines()) + "\n")


def write(text: str) -> None:
    """Text on stdout; a reader who has gone (``| head -1``) is not a failure of ours."""
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
        raise cannot_write(error) from error


def cannot_write(error: OSError) -> OomproofError:
    """What to tell of a full disk behind stdout, to which nothing goes from here on."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return OomproofError(f"cannot write the report: {error.strerror}")


def complain(message: str) -> None:
    """One line on stderr, whatever the message has inside."""
    tell(_make_printable(f"oomproof: {message}"))


def tell(line: str) -> None:
    """A line on stderr. Where that is full, or its reader has gone, the answer is still wanted on stdout."""
    encoding = sys.stderr.encoding or "utf-8"
    with suppress(OSError):
        print(line.encode(encoding, "replace").decode(encoding), file=sys.stderr, flush=True)


def open_what_is_closed() -> None:
    """Descriptors that whoever started us has closed (``2>&-``, some daemons) lead nowhere from here on: the next file
    to be opened would get their number, and what libraries print would be written into it."""
    with suppress(OSError):
        while (opened := os.open(os.devnull, os.O_RDWR)) <= 2:
            pass
        os.close(opened)
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115  # until the process ends


def _make_printable(text: str) -> str:
    """As one line, with everything shown that a terminal would obey."""
    line = " ".join(text.split())
    return line if line.isprintable() else "".join(each if each.isprintable() else _escape(each) for each in line)


def _escape(found: str | re.Match[str]) -> str:
    return (found if isinstance(found, str) else found[0]).encode("unicode_escape").decode("ascii")


@contextmanager
def at_work(quiet: bool) -> Iterator[Callable[[str], None]]:
    """While a user's code runs: its own prints go to stderr, so that stdout holds the report alone."""
    with progress(quiet) as say, stdout_to_stderr():
        yield say


@contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """Prints of Python and of what lies beneath it: libraries in C and child processes write to the descriptor."""
    with redirect_stdout(sys.stderr):
        try:
            kept = os.dup(1)
        except OSError:  # closed
            yield
            return
        try:
            with suppress(OSError):
                os.dup2(2, 1)
            yield
        finally:
            with suppress(ImportError, OSError, AttributeError):  # what C has buffered
                import ctypes

                ctypes.CDLL(None).fflush(None)
            os.dup2(kept, 1)
            os.close(kept)


@contextmanager
def progress(quiet: bool) -> Iterator[Callable[[str], None]]:
    """What is being done now: a spinner on a terminal, short lines elsewhere, nothing if ``quiet``."""
    if quiet:
        yield lambda _: None
    elif sys.stderr.isatty():
        from rich.console import Console

        with Console(stderr=True, highlight=False, markup=False).status("starting") as status:
            yield lambda doing: status.update(_make_printable(doing))
    else:
        yield _lines()


@contextmanager
def at_long_work(quiet: bool) -> Iterator[Callable[[str, float], None]]:
    """Like ``at_work``, for work that knows how much of it is done (0 to 1): a bar on a terminal."""
    if quiet or not sys.stderr.isatty():
        with at_work(quiet) as say:
            yield lambda doing, _: say(doing)
    else:
        with _bar() as say_part, stdout_to_stderr():
            yield say_part


@contextmanager
def _bar() -> Iterator[Callable[[str, float], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
    from rich.table import Column

    doing_now = TextColumn("{task.description}", markup=False, table_column=Column(ratio=1, no_wrap=True))
    columns = (BarColumn(24), TextColumn("{task.percentage:>3.0f} %"), TimeElapsedColumn(), doing_now)
    with Progress(*columns, console=Console(stderr=True), transient=True, expand=True) as progress:
        task = progress.add_task("starting", total=1.0)
        most = 0.0

        def say(doing: str, part: float) -> None:
            nonlocal most
            most = max(most, min(1.0, part))  # a bar that runs backwards makes people doubt it
            progress.update(task, description=_make_printable(doing), completed=most)

        yield say


def _lines() -> Callable[[str], None]:
    """A line whenever the work changes: a log is read later, and by people."""
    last = ""

    def line(doing: str) -> None:
        nonlocal last
        if doing != last:
            last = doing
            tell(_make_printable(doing))

    return line
