"""Failures while a job's code runs: told as the user's, with their line, or as oomproof's own, with a report.

Who is to blame is seen from the traceback. A job's code is more than the user's lines: models of libraries fail as
well, and operations are computed by the tracer, so that a shape that does not fit is noticed beneath it.
"""

from __future__ import annotations

import os
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn
from unittest.mock import patch

from oomproof.errors import JobError, OomproofError, internal_error

_OWN = Path(__file__).resolve().parent.parent
_RUNS_THE_JOB = (
    "trace/torch/loop.py", "trace/tensorflow/graph/capture.py", "trace/tensorflow/session/", "trace/keras/", "changes/",
    "sources/", "data/",
)  # fmt: skip
"""oomproof's code that calls the job's: its factories, its training step, its data"""
_IN_OPERATIONS = (
    "trace/torch/tracer.py", "trace/torch/values.py", "trace/torch/gpu/", "trace/torch/shapes/", "trace/torch/around/",
    "trace/torch/session/",
)  # fmt: skip
"""oomproof's code that the job's code runs through with every operation"""
_SAYS_FOR_THE_SYSTEM = ("sources/script/child/",)
"""oomproof's code that a script finds in place of the system's, and that refuses as the system would"""
_STANDS_FOR_THE_FRAMEWORK = ("sources/script/child/keras_fit.py", "trace/tensorflow/session/session.py")
"""oomproof's code in place of a framework's method that it calls; Keras takes its own frames out of tracebacks"""
_NEVER_A_SHAPE = (AttributeError, KeyError, NameError, ImportError, RecursionError)
"""what no operation says of tensors that do not fit"""

_LONGEST = 500
"""characters of a message that are told: some show whole arrays"""
_EXTRAS = {"torch": "torch", "torchvision": "torch", "tensorflow": "tensorflow", "keras": "tensorflow", "jax": "xla"}
"""what a user's job may import, and the extra that brings it"""

_NOT_TRACED = {
    "UninitializedParameter": (
        "the model has a lazy layer (nn.LazyLinear, nn.LazyConv2d, ...), whose weights have no size until it runs, and "
        "a trace needs them before; give it its sizes, as in nn.Linear(512, 10)"
    ),
    "self.shape_env must not be None": (
        "the job makes nested tensors, whose memory is not forecast; pad them to one size: "
        "torch.nested.to_padded_tensor, nn.utils.rnn.pad_sequence"
    ),
}
"""what fake tensors (torch 2.14) say of what they cannot be, and what to do instead"""


@contextmanager
def blaming_user_code() -> Iterator[None]:
    """An exception becomes a JobError that shows the user's line, or an InternalError where oomproof is to blame."""
    try:
        with _staying_alive():
            yield
    except (OomproofError, KeyboardInterrupt):
        raise
    except BaseException as error:  # a user's code may raise what is not an Exception
        if isinstance(error, GeneratorExit) and not _user_line(error):  # this generator is closed
            raise
        if _is_own_fault(error):
            raise internal_error(error) from error
        message = _read_message(error)
        reason = message.splitlines()[0][:_LONGEST] if message else ""
        what = f"{type(error).__name__}: {reason}" if reason else type(error).__name__
        line = _user_line(error)
        if refusal := _what_is_not_traced(message):
            raise JobError(f"{refusal}{f' (at {line})' if line else ''}") from error
        raise JobError(f"the job raised {what}{f' at {line}' if line else ''}{say_what_to_install(error)}") from error


def _read_message(error: BaseException) -> str:
    try:
        return str(error).strip()
    except Exception:  # of the user's own making, as the error is
        return ""


def _what_is_not_traced(message: str) -> str:
    return next((refusal for words, refusal in _NOT_TRACED.items() if words in message), "")


def say_what_to_install(error: BaseException) -> str:
    missing = (error.name or "").split(".", 1)[0] if isinstance(error, ModuleNotFoundError) else ""
    extra = _EXTRAS.get(missing)
    return f"; {missing} is not installed here: pip install 'oomproof[{extra}]'" if extra else ""


@contextmanager
def _staying_alive() -> Iterator[None]:
    """``os._exit`` of the user's code would end oomproof, with an exit code that says something else."""
    leave, here = os._exit, os.getpid()

    def stay(code: int = 0) -> NoReturn:
        if os.getpid() != here:  # a child that the user's code has made
            leave(code)
        raise SystemExit(f"os._exit({code})")

    with patch.object(os, "_exit", stay):
        yield


def _is_own_fault(error: BaseException) -> bool:
    """Whether the innermost line that is not a library's is oomproof's, and does not stand for the job's code."""
    if isinstance(error, (SystemExit, SyntaxError, MemoryError)):
        return False
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    at = max((place for place, file in enumerate(files) if not _is_library(file)), default=-1)
    if at < 0 or not _is_own(files[at]):
        return False
    by_itself = at == len(files) - 1  # else a library has raised it that was called there
    if _within(files[at], _SAYS_FOR_THE_SYSTEM) and isinstance(error, OSError):
        return False
    if _within(files[at], _RUNS_THE_JOB):
        if _within(files[at], _STANDS_FOR_THE_FRAMEWORK):
            by_itself = by_itself and isinstance(error, _NEVER_A_SHAPE)
        return by_itself and not isinstance(error, TypeError)  # which a factory with other arguments gives as well
    if _within(files[at], _IN_OPERATIONS):
        for_the_job = any(not _is_own(file) or _within(file, _RUNS_THE_JOB) for file in files[:at])
        return by_itself or not for_the_job or isinstance(error, _NEVER_A_SHAPE)
    return True


def _user_line(error: BaseException) -> str:
    """The innermost line of the traceback that belongs to neither oomproof nor a library."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}: {(error.text or '').strip()}"
    return _line_among(traceback.extract_tb(error.__traceback__))


def user_line_now() -> str:
    """The line of the user's code that runs now."""
    return _line_among(traceback.extract_stack())


def is_users(file: str) -> bool:
    """Whether a file's code belongs to neither oomproof nor a library."""
    return not _is_own(file) and not _is_library(file)


def _line_among(frames: traceback.StackSummary) -> str:
    theirs = [frame for frame in frames if is_users(frame.filename)]
    return "".join(f"{frame.filename}:{frame.lineno}: {frame.line}" for frame in theirs[-1:])


def _is_own(file: str) -> bool:
    return Path(file).is_relative_to(_OWN)


def _within(file: str, parts: tuple[str, ...]) -> bool:
    return _is_own(file) and Path(file).relative_to(_OWN).as_posix().startswith(parts)


def _is_library(file: str) -> bool:
    if _is_own(file):
        return False
    return "site-packages" in file or file.startswith(("<frozen", sysconfig.get_paths()["stdlib"]))
