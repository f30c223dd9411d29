"""A command that trains, taken apart: which Python runs it, what is run, with which arguments, as how many ranks."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from oomproof.errors import InputError
from oomproof.files.looking import is_there, say_why_no_file
from oomproof.files.regular import open_regular

MARK = "-- "
"""stands before a command that the user has marked as one"""
_PYTHON = re.compile(r"(python|pypy)(\d(\.\d+)?)?(\.exe)?")
_VERSION = re.compile(r"python(\d+)\.(\d+)")
_VARIABLE = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_RUNNERS = {"uv": 2, "poetry": 2, "pipenv": 2, "pdm": 2, "time": 1, "nohup": 1}
"""words that only lead up to a command, and how many there are of them (``uv run``)"""
_LAUNCHERS = ("torchrun", "accelerate", "deepspeed", "yolo", "lightning")
_TORCHRUN_FLAGS = {"--standalone", "--no-python", "--no_python", "--use-env", "--use_env", "-h"}
_ACCELERATE_FLAGS = {
    "--multi_gpu", "--cpu", "--tpu", "--use_deepspeed", "--use_fsdp", "--quiet", "--no_python", "--debug", "-q",
}  # fmt: skip
_PYTHON_WITH_VALUE = {"-W", "-X", "--check-hash-based-pycs"}


@dataclass(frozen=True)
class Command:
    """What is run, in a process of ``python``."""

    kind: Literal["file", "module", "code", "notebook"]
    target: str
    arguments: tuple[str, ...] = ()
    python: str = sys.executable
    options: tuple[str, ...] = ()
    """of Python itself"""
    variables: dict[str, str] = field(default_factory=dict)
    """of the environment, set before the command"""
    lead: tuple[str, ...] = ()
    """the words before the script's own arguments, as they were given"""
    ranks: int | None = None
    """processes that a launcher would start; None: there is no launcher"""

    @property
    def text(self) -> str:
        """As a person would type it."""
        return shlex.join([*self.lead, *self.arguments])

    @property
    def name(self) -> str:
        """What a report calls it."""
        target = Path(self.target).name if self.kind in ("file", "notebook") else self.target
        words = {"file": [target], "notebook": [target], "module": ["-m", target], "code": ["-c", "..."]}[self.kind]
        return shlex.join([*words, *self.arguments])


def is_command(text: str) -> bool:
    """Whether a job's text is a command line. Looks at no file.

    >>> is_command("python train.py --batch-size 16"), is_command("train.py:job"), is_command("notebook.ipynb")
    (True, False, True)
    """
    if text.startswith(MARK) or text.endswith(".ipynb"):
        return True
    try:
        words = shlex.split(text)
    except ValueError:
        return False
    while words and _VARIABLE.fullmatch(words[0]):
        words.pop(0)
    if len(words) < 2:
        return False
    first = Path(words[0]).name
    return bool(_PYTHON.fullmatch(first)) or first in _LAUNCHERS or first in _RUNNERS or words[0].endswith(".py")


def read_command(text: str) -> Command:
    """
    >>> read_command("torchrun --nproc-per-node 4 train.py --lr 0.1").ranks
    4
    """
    try:
        words = shlex.split(text.removeprefix(MARK))
    except ValueError as error:
        raise InputError(f"the command {text!r} cannot be read: {error}") from None
    every, variables = list(words), dict[str, str]()
    while words and (_VARIABLE.fullmatch(words[0]) or words[0] in _RUNNERS or words[0] == "env"):
        if found := _VARIABLE.fullmatch(words[0]):
            variables[found[1]] = found[2]
        words = words[_RUNNERS.get(words[0], 1) :]
    if not words:
        raise InputError("there is no command after --: expected one that trains, for example `-- python train.py`")
    command = _read(words)
    return replace(command, variables=variables, lead=tuple(every[: len(every) - len(command.arguments)]))


def _read(words: Sequence[str]) -> Command:
    first, rest = words[0], list(words[1:])
    name = Path(first).name
    if _PYTHON.fullmatch(name):
        return _of_python(_interpreter(first), rest)
    if name in ("torchrun", "deepspeed"):
        return _parse_launcher(rest, _TORCHRUN_FLAGS, ("--nproc-per-node", "--nproc_per_node", "--num_gpus"))
    if name == "accelerate":
        return _parse_launcher(rest[1:], _ACCELERATE_FLAGS, ("--num_processes",))
    if first.endswith(".ipynb"):
        return Command("notebook", _require_file(first), tuple(rest))
    if first.endswith(".py"):
        return Command("file", _require_file(first), tuple(rest))
    found = shutil.which(first)
    if found is None:
        raise InputError(f"there is no command {first!r}: expected `python train.py`, `torchrun train.py` or the like")
    with Path(found).open("rb") as file:
        start = file.readline(256)
    if start.startswith(b"#!") and b"python" in start:
        return Command("file", found, tuple(rest))
    raise InputError(f"{first!r} is not a Python program: a script can be followed only where Python runs it")


def _of_python(python: str, words: list[str]) -> Command:
    options: list[str] = []
    while words:
        word = words.pop(0)
        if word == "-m" and words:
            module, rest = words[0], words[1:]
            if module in ("torch.distributed.run", "torch.distributed.launch"):
                names = ("--nproc-per-node", "--nproc_per_node")
                return replace(_parse_launcher(rest, _TORCHRUN_FLAGS, names), python=python)
            if module == "accelerate.commands.launch":
                return replace(_parse_launcher(rest, _ACCELERATE_FLAGS, ("--num_processes",)), python=python)
            return Command("module", module, tuple(rest), python, tuple(options))
        if word == "-c" and words:
            return Command("code", words[0], tuple(words[1:]), python, tuple(options))
        if not word.startswith("-"):
            kind: Literal["notebook", "file"] = "notebook" if word.endswith(".ipynb") else "file"
            return Command(kind, _require_file(word), tuple(words), python, tuple(options))
        options.append(word)
        if word in _PYTHON_WITH_VALUE and words:
            options.append(words.pop(0))
    raise InputError("the command names no script: expected `python train.py`, `python -m package.train` or the like")


def _parse_launcher(words: list[str], flags: set[str], ranks_named: Sequence[str]) -> Command:
    """A launcher's own options, then what it launches: one rank of it is followed."""
    ranks, module = 1, False
    while words:
        word = words.pop(0)
        if word in ("-m", "--module"):
            module = True
        elif not word.startswith("-"):
            kind: Literal["module", "file"] = "module" if module else "file"
            return Command(kind, word if module else _require_file(word), tuple(words), ranks=ranks)
        else:
            option, equals, value = word.partition("=")
            if not equals and option not in flags and words:
                value = words.pop(0)
            if option in ranks_named and value.isdigit():
                ranks = max(1, int(value))
    raise InputError("the launcher names no script: expected `torchrun train.py` or the like")


def _interpreter(word: str) -> str:
    """The Python that is meant: a path as it is; a plain ``python`` of the environment that is active; else the one
    that runs oomproof (whoever calls .venv/bin/oomproof means that environment, whatever a shell would find)."""
    found = shutil.which(word)
    if "/" in word:
        if found is None:
            raise InputError(f"there is no Python at {word}")
        return found
    version = _VERSION.fullmatch(word)
    if version and tuple(map(int, version.groups())) != sys.version_info[:2]:  # another than oomproof's is meant
        if found is None:
            raise InputError(f"there is no {word} here: nothing on PATH has that name")
        return found
    active = os.environ.get("VIRTUAL_ENV") or os.environ.get("CONDA_PREFIX")
    return found if active and found and Path(found).is_relative_to(active) else sys.executable


def _require_file(path: str) -> str:
    if not is_there(path):
        raise InputError(f"{say_why_no_file(path)}: check the path, from the folder that you are in")
    try:
        open_regular(path).close()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}; expected a script or a notebook") from None
    return path
