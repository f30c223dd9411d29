"""Values as Detectron2 reads them: texts become Python literals, and the default's type decides what is allowed."""

from __future__ import annotations

import ast
import reprlib
from typing import Any

from oomproof.errors import InputError, near
from oomproof.sources.detectron2.config.inventions import advice
from oomproof.sources.detectron2.config.schema import DEFAULTS, PROJECTS, SECTIONS

LEAVES = (tuple, list, str, int, float, bool, type(None))
"""the types a key may have in Detectron2"""
_MOST = (1 << 31) - 1
"""no key of a training is larger; told here, before a framework is loaded"""
_ANY_NUMBER = frozenset({"SEED"})
_MAY_BE_MISSING = frozenset({"SOLVER.WEIGHT_DECAY_NORM", "SOLVER.BIAS_LR_FACTOR"})
"""numbers that Detectron2's optimizer does without (0.6)"""


def decode(value: Any) -> Any:
    """``"(600,)"`` is a tuple, ``"1e-3"`` a number, ``"choice"`` stays a text."""
    if not isinstance(value, str):
        return value
    try:
        return ast.literal_eval(value)
    except (ValueError, SyntaxError):  # a plain text; so in yacs, which Detectron2 reads configs with
        return value
    except (MemoryError, RecursionError):
        raise InputError(f"a config value is nested too deeply: {value[:40]}...") from None


def check_value(key: str, value: Any, where: str) -> Any:
    """The value as Detectron2 keeps it. It changes lists to tuples and back, and nothing else: not 1 to 1.0."""
    if key in SECTIONS:
        raise InputError(
            f"{where}: {key} is a section: expected keys under it, got {_shorten_value(value)}. Fill it or remove it"
        )
    if key not in DEFAULTS:
        raise InputError(describe_unknown_key(key, where))
    numbers = value if isinstance(value, (list, tuple)) else (value,)
    if key not in _ANY_NUMBER and any(isinstance(number, int) and number > _MOST for number in numbers):
        raise InputError(f"{where}: {key} must be at most {_MOST}; got {_shorten_value(value)}")
    default = DEFAULTS[key]
    kind, wanted = type(value), type(default)
    if value is None and wanted in (int, float, tuple, list) and key not in _MAY_BE_MISSING:
        raise InputError(
            f"{where}: {key} has no value (null), which Detectron2 reads and then stops at where it uses it; expected "
            f"{_article(wanted)} such as {default!r}, or remove the key"
        )
    if kind is wanted or ((value is None or default is None) and kind in LEAVES):
        return value
    if isinstance(value, (list, tuple)) and isinstance(default, (list, tuple)):
        return wanted(value)
    hint = f"; write {float(value)}" if kind is int and wanted is float else ""
    raise InputError(
        f"{where}: {key} must be {_article(wanted)} such as {default!r}, as Detectron2 checks it; got "
        f"{_shorten_value(value)}, {_article(kind)}{hint}"
    )


def describe_unknown_key(key: str, where: str) -> str:
    """What to say of a key that Detectron2 does not have."""
    for name, project in PROJECTS.items():
        if key == name or key.startswith(f"{name}."):
            return (
                f"{where}: {key} belongs to the project {project}, which adds keys and code of its own; "
                "oomproof knows the configs of Detectron2 itself. Give the job as FILE.py:FUNCTION (docs/jobs.md)"
            )
    found = advice(key)
    if found:
        return f"{where}: {key} does not exist in Detectron2, which stops with a KeyError here. {found}"
    above = key.rpartition(".")[0]
    if above in DEFAULTS:
        return f"{where}: {above} is one value such as {DEFAULTS[above]!r}, not a section with keys"
    meant = nearest(key)
    return f"{where}: {key} does not exist in Detectron2, which stops with a KeyError here" + (
        f"; did you mean {' or '.join(meant)}?" if meant else ". Remove it, or correct its name (docs/detectron2.md)"
    )


def nearest(key: str) -> list[str]:
    """Keys with a like name: of the same section first, then of any."""
    section, _, last = key.rpartition(".")
    every = [*DEFAULTS, *sorted(SECTIONS)]
    same = {name.rpartition(".")[2]: name for name in every if name.rpartition(".")[0] == section}
    here = [same[name] for name in near(last, same, 0.6)]
    return here or [name for name in every if name.rpartition(".")[2] == last][:3] or near(key, every, 0.75)


def _shorten_value(value: Any) -> str:
    return reprlib.repr(value)


def _article(kind: type) -> str:
    names = {
        int: "a whole number", float: "a number with a point", str: "a text", bool: "True or False", list: "a list",
        tuple: "a tuple", dict: "a section", type(None): "nothing",
    }  # fmt: skip
    return names.get(kind, f"a {kind.__name__}")
