"""The ``oomproof`` command: one file per sub-command, nothing but arguments and printing.

Frameworks, NumPy and rich are imported inside the commands that need them, so that ``--help`` starts at once.
"""

from __future__ import annotations

import atexit
import errno
import gc
import os
import shlex
import shutil
import signal
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from oomproof import __version__
from oomproof.cli.check import check
from oomproof.cli.data import data
from oomproof.cli.explain import explain
from oomproof.cli.fit import FitCommand, fit
from oomproof.cli.gpus import gpus
from oomproof.cli.measure import measure
from oomproof.cli.run import run
from oomproof.cli.screen import cannot_write, complain, open_what_is_closed, tell
from oomproof.cli.watch import watch
from oomproof.cli.zoo import zoo
from oomproof.errors import InternalError, OomproofError, TooSmall, internal_error
from oomproof.sources.script.command import MARK, is_command

FITS, FAILED, DOES_NOT_FIT, INTERRUPTED = 0, 1, 2, 130
_FULL = (errno.ENOSPC, errno.EDQUOT)
ENDING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))

# typer carries its own copy of click since 0.2x and uses the installed one before; both name this class's parent.
UsageError: Any = typer.BadParameter.__bases__[0]

# Plain help: with rich_markup_mode="rich" --help takes twice as long (0.18 s, not 0.09, typer 0.29).
app = typer.Typer(
    name="oomproof",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(check)
app.command(cls=FitCommand)(fit)
app.command()(explain)
app.command()(data)
app.command()(zoo)
app.command()(gpus)
app.command()(run)
app.command()(watch)
app.command()(measure)


@app.callback(invoke_without_command=True)
def oomproof(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    """Will it fit? Make it fit. Why didn't it fit? Forecasts the GPU memory of a training job, finds the settings that
    fit a budget, without a GPU and without running a step, and explains the log of a training that ran out of memory.

    \b
    Examples:
      oomproof check torchvision:maskrcnn_resnet50_fpn --batch 2 --on "RTX 3060"
      oomproof check --on "RTX 3060" -- python train.py --batch-size 16
      oomproof check train_job.py:job --on 8GiB --set precision=fp16
      oomproof fit torchvision:maskrcnn_resnet50_fpn --batch 16 --on "RTX 3060"
      oomproof explain train.log
      oomproof run -- python train.py --batch-size 16
      oomproof watch 12345
      oomproof data annotations.json
      oomproof zoo --on "RTX 3060"
      oomproof gpus
    """
    if version:
        typer.echo(f"oomproof {__version__}")
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit code; a failure is one line on stderr (a fault of
    oomproof: a line and a report to copy).

    0: fits, or done. 2: does not fit, or at risk. 1: bad input or a failure. 130: interrupted. 143: terminated.
    129: its terminal was closed.
    """
    if arguments is None:
        open_what_is_closed()
        _leave_garbage()
        for number in ENDING:
            if signal.getsignal(number) is signal.SIG_DFL:  # not under nohup
                signal.signal(number, _terminate)
    given = _with_command(list(sys.argv[1:] if arguments is None else arguments))
    try:
        code = app(given, prog_name="oomproof", standalone_mode=False) or FITS
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except UsageError as error:
        command = "oomproof" if error.ctx is None else error.ctx.command_path
        said = error.format_message().rstrip(".")
        complain(f"{said}{'' if said.endswith('?') else '.'} See: {command} --help")
        return FAILED
    except BaseException as error:  # a user's code may raise what is no Exception
        if "--debug" in given:
            raise
        _tell(error)
        return DOES_NOT_FIT if isinstance(error, TooSmall) else FAILED
    if code == INTERRUPTED:
        came = next((number for number in ENDING if signal.getsignal(number) is _exit_by_signal), signal.SIGINT)
        code = 128 + came
        complain("interrupted" if came == signal.SIGINT else "terminated")
    return int(code)


def _with_command(given: list[str]) -> list[str]:
    """``-- python train.py --lr 0.1``: the words of a command become one text, which is a job."""
    if "--" not in given or given[0] not in ("check", "fit"):
        return given
    at = given.index("--")
    text = shlex.join(given[at + 1 :])
    words = given[at + 1 :]
    if not words or (len(words) == 1 and not is_command(text)) or not (is_command(text) or shutil.which(words[0])):
        return given
    return [*given[:at], "--", MARK + text]


def _terminate(number: int, frame: object) -> None:
    """``kill``, ``timeout`` and batch systems end a process by SIGTERM, a terminal that is closed by SIGHUP. By itself
    that would leave half-written files, temporary folders and children behind. From here it goes as with Ctrl-C; a
    second one ends it at once."""
    signal.signal(number, _exit_by_signal)
    raise KeyboardInterrupt


def _exit_by_signal(number: int, frame: object) -> None:
    os._exit(128 + number)


def _leave_garbage() -> None:
    """Frameworks make a million objects that last as long as the process. Python would look through them again and
    again while they are loaded, and once more at the end: together most of a second."""
    gc.set_threshold(100_000)
    atexit.register(gc.freeze)


def _tell(error: BaseException) -> None:
    """One line for what the user can mend; for a fault of oomproof, a line and the report below it."""
    if isinstance(error, MemoryError):  # before anything that takes more of it
        complain("this machine, or a limit on this process, leaves too little memory for that")
        return
    if isinstance(error, OSError) and error.errno in _FULL and sys.stdout is not None:  # help and version, by click
        error = cannot_write(error)
    if not isinstance(error, OomproofError):
        error = internal_error(error)
    first, *report = str(error).split("\n") if isinstance(error, InternalError) else [str(error)]
    complain(first)
    for line in report:
        tell(line)
