"""Bytes and setting values as people read them: GiB with two decimals, sizes as HEIGHTxWIDTH.

>>> gib(5348 << 20)
'5.22 GiB'
>>> number(1 << 10)
'<0.01'
>>> value((800, 1333))
'800x1333'
"""

from __future__ import annotations

from typing import Any

GIB = 1 << 30


def number(nbytes: int) -> str:
    """GiB without the unit, for columns whose heading carries it."""
    if 0 < nbytes < GIB // 200:
        return "<0.01"
    return f"{nbytes / GIB:.2f}"


def gib(nbytes: int) -> str:
    return f"{number(nbytes)} GiB"


def value(setting: Any) -> str:
    """A setting's value as one would type it after ``--set NAME=``."""
    if isinstance(setting, bool):
        return "true" if setting else "false"
    if isinstance(setting, tuple | list):
        return "x".join(value(part) for part in setting)
    return str(setting)


def describe_setting(name: str, setting: Any) -> str:
    """The value of a setting by that name: keys of a config, which have dots in them, are written as in Python.

    >>> describe_setting("image_size", (800, 1333)), describe_setting("SOLVER.STEPS", (60000, 80000))
    ('800x1333', '(60000, 80000)')
    """
    return str(setting) if "." in name else value(setting)


def sides(setting: Any) -> tuple[int, ...]:
    """Height and width (or the one side) of an image size, however it is kept; empty for anything else.

    >>> sides("800x1333"), sides([640, 640]), sides(224), sides("fp16")
    ((800, 1333), (640, 640), (224,), ())
    """
    if isinstance(setting, str):
        texts = setting.lower().split("x")
        return tuple(int(text) for text in texts) if all(text.isdecimal() for text in texts) else ()
    parts = setting if isinstance(setting, tuple | list) else [setting]
    return tuple(parts) if all(isinstance(part, int) and not isinstance(part, bool) for part in parts) else ()


def shorten(name: str, width: int) -> str:
    """A module path cut in its middle: where it starts and where it ends tell the most."""
    if len(name) <= width:
        return name
    if width < 8:
        return name[:width]
    tail = (width - 2) * 2 // 3
    return f"{name[: width - 2 - tail]}..{name[-tail:]}"


def describe_count(count: int, noun: str) -> str:
    """
    >>> describe_count(1, "batch"), describe_count(1200, "image")
    ('1 batch', '1,200 images')
    """
    several = f"{noun}es" if noun.endswith("ch") else f"{noun}s"
    return f"{count:,} {noun if count == 1 else several}"
