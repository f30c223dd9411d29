"""Where in a script's code its model could be told to compute blocks again: just before its optimizer is made.

By then the model is there, whatever made it, and has not run yet. What the code calls it there is found among the
variables of the line that makes the optimizer, or that calls the library which makes it.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch

from oomproof.trace.user_code import is_users


@dataclass(frozen=True)
class Spot:
    """A line of the user's code, and the modules that it has names for."""

    file: str
    line: int
    modules: tuple[tuple[str, weakref.ref[torch.nn.Module]], ...]


def see_spot() -> Spot | None:
    """The line of the user's code that runs now."""
    frame = inspect.currentframe()
    while frame is not None and not is_users(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None:
        return None
    named = tuple((name, weakref.ref(module)) for name, module in _find_modules(frame))
    return Spot(frame.f_code.co_filename, frame.f_lineno, named)


def describe_spot(spot: Spot | None, model: torch.nn.Module) -> dict[str, Any] | None:
    """How the model is named there, and what is before its modules' paths on one side alone; None where it has no
    name. ``without``: the name is that of a part (what DataParallel wraps); ``within``: of what the model is a part."""
    if spot is None:
        return None
    here = [(name, module()) for name, module in spot.modules]
    whole = [name for name, module in here if module is model]
    if whole:
        return {"file": spot.file, "line": spot.line, "name": whole[0], "without": "", "within": ""}
    for path, part in model.named_modules():
        for name, module in here:
            if module is part and "." not in path and type(part) is not torch.nn.Identity and _is_most(part, model):
                return {"file": spot.file, "line": spot.line, "name": name, "without": f"{path}.", "within": ""}
    for name, module in here:
        inner = _path_to(module, model)
        if inner:
            return {"file": spot.file, "line": spot.line, "name": name, "without": "", "within": f"{inner}."}
    return None


def _is_most(part: torch.nn.Module, model: torch.nn.Module) -> bool:
    """A wrapper has no parameters of its own."""
    return sum(1 for _ in part.parameters()) == sum(1 for _ in model.parameters())


def _path_to(outer: torch.nn.Module | None, model: torch.nn.Module) -> str:
    if outer is None:
        return ""
    return next((path for path, module in outer.named_modules() if module is model), "")


def _find_modules(frame: FrameType) -> Iterator[tuple[str, torch.nn.Module]]:
    """Variables of the line, then what its object holds, then those of the whole file."""
    yield from _modules_in(frame.f_locals)
    owner = frame.f_locals.get("self")
    if owner is not None:
        try:
            held = {**vars(owner), **(vars(owner).get("_modules") or {})}
        except TypeError:  # it has slots
            held = {}
        for name, module in _modules_in(held):
            yield f"self.{name}", module
    if frame.f_globals is not frame.f_locals:
        yield from _modules_in(frame.f_globals)


def _modules_in(variables: Mapping[str, Any]) -> Iterator[tuple[str, torch.nn.Module]]:
    for name, value in list(variables.items()):
        if issubclass(type(value), torch.nn.Module) and name.isidentifier():
            yield name, value
