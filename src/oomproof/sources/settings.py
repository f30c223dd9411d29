"""What may be set about a job, and reading what a user set: names, types, bounds."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from oomproof.errors import InputError, did_you_mean
from oomproof.memory.allocators.cuda import CudaRules
from oomproof.memory.runtime import CHOICES, HELP, OF_TENSORFLOW, Runtime
from oomproof.memory.settings import Role
from oomproof.sources.job import ASSUMED, Job, Setting, Settings, find_roles

_LEAST = {
    "batch": 1, "batch_size": 1, "image_size": 1, "size": 1, "height": 1, "width": 1, "classes": 1, "num_classes": 1,
    "accumulate": 1, "prefetch_factor": 1, "boxes": 0, "workers": 0, "max_split_size_mb": 0, "memory_limit_mb": 0,
    "mixing": 1, "processes": 1, "arrays_mb": 0, "trainable_layers": -1,
}  # fmt: skip
"""the least that makes sense, for settings of these names; a user's other parameters may be anything"""
_MOST = (1 << 31) - 1
_MOST_OF: Mapping[Role, int] = {"batch": 1 << 16, "boxes": 10_000, "image size": 1 << 15, "accumulation": 1 << 16}
"""beyond which nobody trains: a typing error, which would be traced for hours"""
_WORDS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


def settings_of(job: Job) -> tuple[Setting, ...]:
    """Everything that may be set: the job's own settings, then those of the run around it."""
    own = {setting.name for setting in job.settings}
    if own & set(OF_TENSORFLOW):  # the others are PyTorch's
        return job.settings
    return (*job.settings, *(setting for setting in runtime_settings({}) if setting.name not in own))


def runtime_settings(usual: Mapping[str, Any], *, of_tensorflow: bool = False) -> tuple[Setting, ...]:
    """The settings of the run around a step; ``usual`` has other defaults, taken where their type is right."""
    plain = Runtime()
    defaults = {field.name: getattr(plain, field.name) for field in fields(Runtime)}
    found = []
    for name, default in defaults.items():
        if (name in OF_TENSORFLOW) == of_tensorflow:
            value = usual[name] if type(usual.get(name)) is type(default) else default
            basis = ASSUMED if name == "workers" and name not in usual else ""  # trainings mostly have some
            found.append(Setting(name, value, HELP[name], CHOICES.get(name, ()), basis=basis))
    return tuple(found)


def resolve(job: Job, given: Mapping[str, Any]) -> Settings:
    """One value for every setting: what was given (texts are read as the default's type), else the default."""
    known = {setting.name: setting for setting in settings_of(job)}
    roles = find_roles(known.values())
    own = roles.get("batch", "")
    for word in ("batch", "batch_size"):  # --batch N, batch_size=N: whatever the job calls it
        if word in given and word not in known and own:
            given = {**{name: value for name, value in given.items() if name != word}, own: given[word]}
    for name in given:
        if name not in known:
            meant = did_you_mean(name, known, ".")
            raise InputError(f"{job.name} has no setting '{name}'{meant} It has {', '.join(known)}")
    values = {name: _read(each, given[name]) if name in given else each.default for name, each in known.items()}
    for name, each in known.items():
        if each.follows is not None and name not in given:
            values[name] = each.follows(values)
    if "expandable_segments" in values:
        CudaRules(
            values["expandable_segments"], values["max_split_size_mb"]
        )  # refuses what PyTorch's allocator refuses
    most = {name: _MOST_OF[role] for role, name in roles.items() if role in _MOST_OF and not known[name].own}
    _refuse_absurd(values, most)
    return Settings(values, roles)


def _refuse_absurd(values: Mapping[str, Any], most: Mapping[str, int]) -> None:
    """Numbers of a file too, which are defaults here."""
    for name, value in values.items():
        numbers = value if isinstance(value, (tuple, list)) else (value,)
        limit = most.get(name, _MOST)
        if any(isinstance(number, int) and number > limit for number in numbers):
            raise InputError(f"{name} must be at most {limit}; got {value}")


def _read(setting: Setting, value: Any) -> Any:
    """A value as the setting's type, checked."""
    if setting.read is not None:
        return setting.read(value)
    if setting.choices:
        if str(value) not in setting.choices:
            raise InputError(f"{setting.name} must be one of {', '.join(setting.choices)}; got '{value}'")
        return str(value)
    read = _read_value(setting, value)
    if isinstance(read, bool) or not isinstance(setting.default, (int, tuple)):
        return read
    numbers = read if isinstance(read, tuple) else (read,)
    least = _LEAST.get(setting.name, -_MOST)
    if any(number < least for number in numbers):
        raise InputError(f"{setting.name} must be at least {least}; got {value}")
    return read


def _read_value(setting: Setting, value: Any) -> Any:
    """A text read as the default's type; anything else must have its form already."""
    default, read = setting.default, value
    if isinstance(value, str):
        text = value.strip()
        if isinstance(default, bool):
            read = _WORDS.get(text.lower(), text)
        elif isinstance(default, tuple):
            read = tuple(_number(setting, part) for part in text.lower().strip("()[]").replace(",", "x").split("x"))
        elif isinstance(default, (int, float)):
            read = _number(setting, text)
        elif not isinstance(default, str):
            read = _literal(text)
    return _same_form(setting, read)


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _same_form(setting: Setting, value: Any) -> Any:
    default = setting.default
    if isinstance(default, tuple):
        values = tuple(value) if isinstance(value, (list, tuple)) else (value,)
        values = values * len(default) if len(values) == 1 else values
        if len(values) != len(default) or not all(isinstance(part, (int, float)) for part in values):
            shape = "x".join(str(part) for part in default)
            raise InputError(f"{setting.name} must be {len(default)} numbers such as {shape}; got '{value}'")
        whole = all(isinstance(part, int) for part in default)
        return tuple(_whole(setting, part) if whole else _finite(setting, part) for part in values)
    if isinstance(default, bool):
        if not isinstance(value, bool):
            raise InputError(f"{setting.name} must be true or false; got '{value}'")
        return value
    if isinstance(default, int):
        return _whole(setting, value)
    return _finite(setting, value) if isinstance(default, float) else value


def _whole(setting: Setting, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value % 1 != 0:
        raise InputError(f"{setting.name} must be a whole number; got '{value}'")
    return int(value)


def _finite(setting: Setting, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InputError(f"{setting.name} must be a number; got '{value}'")
    if not math.isfinite(value):
        raise InputError(f"{setting.name} must be a finite number; got '{value}'")
    return float(value)


def _number(setting: Setting, text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return _finite(setting, float(text))
    except ValueError:
        raise InputError(f"{setting.name} must be a number; got '{text}'") from None
