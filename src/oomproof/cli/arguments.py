"""What the options of ``oomproof check`` mean: NAME=VALUE pairs, sweeps, and where a timeline may be saved."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from oomproof.errors import InputError

MOST_VALUES = 64
EVERY_INTEGER_UP_TO = 16


def pair(text: str, option: str, example: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip() or not value.strip():
        raise InputError(f"{option} wants NAME=VALUE, for example {option} {example}; got {text!r}")
    return name.strip(), value.strip()


def given_settings(pairs: Sequence[str], batch: str | None, image_size: str | None) -> dict[str, str]:
    """``--set`` in order, the last one wins; then the shorthands, which win over ``--set``."""
    given = dict(pair(text, "--set", "precision=fp16") for text in pairs)
    if batch is not None:
        given["batch"] = batch
    if image_size is not None:
        given["image_size"] = image_size
    return given


def sweep_values(text: str) -> tuple[str, tuple[str, ...]]:
    """``batch=1..16`` or ``batch=1,2,4`` -> the setting's name and the values as texts.

    >>> sweep_values("batch=1..4")
    ('batch', ('1', '2', '3', '4'))
    >>> sweep_values("batch=1..48")
    ('batch', ('1', '2', '4', '8', '16', '32', '48'))
    """
    name, wanted = pair(text, "--sweep", "batch=1..16")
    values = _range(text, wanted) if ".." in wanted else [part.strip() for part in wanted.split(",")]
    if not all(values):
        raise InputError(f"--sweep {text} has an empty value between its commas")
    if len(values) > MOST_VALUES:
        raise InputError(f"--sweep takes at most {MOST_VALUES} values, got {len(values)}; leave some out")
    return name, tuple(dict.fromkeys(values))


def _range(text: str, wanted: str) -> list[str]:
    first, _, last = (part.strip() for part in wanted.partition(".."))
    try:
        low, high = int(first), int(last)
    except ValueError:
        raise InputError(f"--sweep wants two integers around '..', for example batch=1..16; got {text!r}") from None
    if low > high or low < 0:
        raise InputError(f"--sweep wants a range that grows from 0 or more, for example batch=1..16; got {text!r}")
    if high - low < EVERY_INTEGER_UP_TO:
        return [str(value) for value in range(low, high + 1)]
    values, value = [], low
    while value < high:
        values.append(str(value))
        value = max(1, value * 2)
    return [*values, str(high)]


def writable(path: Path, sweeps: bool) -> None:
    """Said before the trace, not minutes later."""
    if sweeps:
        raise InputError("--save keeps one step, but --sweep makes many: leave one of them out")
    if path.is_dir():
        raise InputError(f"--save wants a file, but {path} is a folder")
    if not path.absolute().parent.is_dir():
        raise InputError(f"--save cannot write {path}: there is no folder {path.absolute().parent}")
