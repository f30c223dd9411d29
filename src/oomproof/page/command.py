"""The command that gives an answer again, as a shell takes it."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from oomproof.report.sizes import describe_setting
from oomproof.sources.job import Setting

SHORT = {
    name: f"--{name.replace('_', '-')} {{value}}" for name in ("batch", "image_size", "gpus", "precision", "backend")
}
"""options of the command that stand for a setting, whatever the job calls it"""
MARK = "-- "


@dataclass(frozen=True)
class Typed:
    """What the user typed of a ``check``."""

    job: str
    config_file: str = ""
    given: Mapping[str, Any] = field(default_factory=dict)
    """values by the names of settings"""
    keys: Sequence[str] = ()
    """KEY VALUE KEY VALUE, of Detectron2"""
    device: str = ""
    """the options for the user's own device, where its name alone does not say it"""


def write_command(typed: Typed, settings: Sequence[Setting], others: Collection[str]) -> tuple[str, list[str]]:
    """How the command begins and ends; between them stands what a page's controls say of ``others``, and the GPU.

    >>> write_command(Typed("net.py:job", given={"batch": "8", "depth": "3 4"}), (), ["batch"])
    ("oomproof check net.py:job --set depth='3 4'", [])
    >>> write_command(Typed("-- python train.py", given={"ddp": True}), (), [])
    ('oomproof check --set ddp=true', ['-- python train.py'])
    """
    known = {setting.name: setting for setting in settings}
    script = typed.job.startswith(MARK)
    words = ["oomproof check", *(() if script else (shlex.quote(typed.job),))]
    words += ["--config-file " + shlex.quote(typed.config_file)] if typed.config_file else []
    words += [write_option(name, value, known) for name, value in typed.given.items() if name not in others]
    pairs = zip(typed.keys[::2], typed.keys[1::2], strict=False)
    end = [f"{shlex.quote(key)} {shlex.quote(value)}" for key, value in pairs if key not in others]
    return " ".join(words), [*end, *((typed.job,) if script else ())]


def write_option(name: str, value: Any, known: Mapping[str, Setting]) -> str:
    """
    >>> write_option("image_size", (64, 96), {})
    '--image-size 64x96'
    """
    text = shlex.quote(describe_setting(name, value))
    if name in known:
        return known[name].as_option(text)
    return SHORT.get(name, f"--set {name}={{value}}").format(value=text)
