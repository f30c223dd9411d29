"""Will it fit? From a job and a device to a Forecast.

>>> import oomproof
>>> forecast = oomproof.check("torchvision:resnet50", on="RTX 3060", batch=64)   # doctest: +SKIP
>>> forecast.outcome, forecast.on_device.expected                                 # doctest: +SKIP
"""

from __future__ import annotations

import ast
import difflib
import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from oomproof.errors import InputError
from oomproof.memory import forecaster
from oomproof.memory.devices import Device, find
from oomproof.memory.forecast import Forecast
from oomproof.memory.runtime import HELP, Runtime
from oomproof.memory.timeline import Timeline
from oomproof.sources import open_job
from oomproof.sources.job import Job, Progress, Setting, Settings

_MAY_BE_ZERO = frozenset({"workers", "max_split_size_mb"})
_MAY_BE_MINUS_ONE = frozenset({"trainable_layers"})


def check(job: str | Job, on: str | Device, *, progress: Progress | None = None, **settings: Any) -> Forecast:
    """Forecasts the memory of one training step of ``job`` with ``settings`` on a device (a GPU's name, a size, ``this``)."""
    device = find(on) if isinstance(on, str) else on
    opened = open_job(job) if isinstance(job, str) else job
    resolved = resolve(opened, settings)
    return forecast(trace(opened, resolved, progress), device, resolved)


def trace(job: Job, settings: Settings, progress: Progress | None = None) -> Timeline:
    """The job's step as a Timeline. ``settings`` must be resolved: one value for every setting of the job."""
    return job.trace(settings, progress or (lambda text: None))


def forecast(timeline: Timeline, device: Device, settings: Settings) -> Forecast:
    """What a traced step means on a device."""
    traced = dict(timeline.about.get("settings", {}))
    name = str(timeline.about.get("job", "job"))
    return forecaster.forecast(timeline, device, forecaster.at_runtime(settings), name, {**traced, **settings})


def settings_of(job: Job) -> tuple[Setting, ...]:
    """Everything that may be set: the job's own settings, then those of the run around it."""
    plain = Runtime()
    around = (Setting(field.name, getattr(plain, field.name), HELP[field.name]) for field in fields(Runtime))
    return (*job.settings, *around)


def resolve(job: Job, given: Mapping[str, Any]) -> dict[str, Any]:
    """One value for every setting: what was given (texts are read as the default's type), else the default."""
    known = {setting.name: setting for setting in settings_of(job)}
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, 3, 0.5)
            raise InputError(
                f"{job.name} has no setting '{name}'"
                + (f"; did you mean {' or '.join(near)}?" if near else "")
                + f" It has {', '.join(known)}"
            )
    return {name: _read(setting, given[name]) if name in given else setting.default for name, setting in known.items()}


def _read(setting: Setting, value: Any) -> Any:
    """A value as the setting's type, checked."""
    if setting.choices:
        if str(value) not in setting.choices:
            raise InputError(f"{setting.name} must be one of {', '.join(setting.choices)}; got '{value}'")
        return str(value)
    read = _typed(setting, value)
    if isinstance(read, float) and not math.isfinite(read):
        raise InputError(f"{setting.name} must be a finite number; got {value}")
    if isinstance(read, bool):
        return read
    numbers = read if isinstance(read, tuple) else (read,)
    least = 0 if setting.name in _MAY_BE_ZERO or _zero_by_default(setting) else 1
    least = -1 if setting.name in _MAY_BE_MINUS_ONE else least
    if any(isinstance(number, int) and number < least for number in numbers):
        raise InputError(f"{setting.name} must be at least {least}; got {value}")
    return read


def _typed(setting: Setting, value: Any) -> Any:
    default = setting.default
    if not isinstance(value, str):
        return _same_form(setting, value)
    text = value.strip()
    if isinstance(default, bool):
        if text.lower() in ("true", "yes", "on", "1"):
            return True
        if text.lower() in ("false", "no", "off", "0"):
            return False
        raise InputError(f"{setting.name} must be true or false; got '{value}'")
    if isinstance(default, tuple):
        return _same_form(setting, tuple(_number(setting, part) for part in text.lower().replace(",", "x").split("x")))
    if isinstance(default, (int, float)):
        return _same_form(setting, _number(setting, text))
    if isinstance(default, str):
        return text
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _same_form(setting: Setting, value: Any) -> Any:
    """A value that was given as a Python object must have the default's form."""
    default = setting.default
    if isinstance(default, tuple):
        values = tuple(value) if isinstance(value, (list, tuple)) else (value,)
        values = values * len(default) if len(values) == 1 else values
        if len(values) != len(default) or not all(isinstance(part, (int, float)) for part in values):
            shape = "x".join(str(part) for part in default)
            raise InputError(f"{setting.name} must be {len(default)} numbers such as {shape}; got '{value}'")
        return values
    if isinstance(default, bool) and not isinstance(value, bool):
        raise InputError(f"{setting.name} must be true or false; got '{value}'")
    if isinstance(default, int) and not isinstance(default, bool):
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not whole and not (isinstance(value, float) and value.is_integer()):
            raise InputError(f"{setting.name} must be a whole number; got '{value}'")
        return int(value)
    return value


def _number(setting: Setting, text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        number = float(text)
    except ValueError:
        raise InputError(f"{setting.name} must be a number; got '{text}'") from None
    if not math.isfinite(number):
        raise InputError(f"{setting.name} must be a finite number; got '{text}'")
    return number


def _zero_by_default(setting: Setting) -> bool:
    return isinstance(setting.default, int) and setting.default <= 0
