"""Which tensors grow in number while a training runs, and who holds them.

before = count_tensors()
...                                     # some steps
for group in growing(before, count_tensors()):
    print(group)
"""

from __future__ import annotations

import gc
import inspect
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from types import CellType, FrameType, FunctionType, ModuleType
from typing import Any

import torch

Kind = tuple[tuple[int, ...], str, bool]
"""shape, dtype, and whether it holds a graph"""


@dataclass(frozen=True)
class Growing:
    shape: tuple[int, ...]
    dtype: str
    more: int
    """how many more there are"""
    nbytes: int
    graph: bool
    """whether each keeps the graph that made it, with all its activations"""
    holder: str

    def __str__(self) -> str:
        graph = ", each with the graph of its step: keep .detach() or .item() instead" if self.graph else ""
        return f"{self.more} more tensors of shape {list(self.shape)} {self.dtype}, held by {self.holder}{graph}"


def count_tensors() -> Mapping[Kind, int]:
    return Counter(_kind(tensor) for tensor in _live())


def find_growing(before: Mapping[Kind, int], after: Mapping[Kind, int], least: int = 3) -> list[Growing]:
    """Groups with at least so many more tensors, the ones that hold graphs and the largest first."""
    found = []
    for kind, count in after.items():
        more = count - before.get(kind, 0)
        if more >= least:
            shape, dtype, graph = kind
            some = [tensor for tensor in _live() if _kind(tensor) == kind]
            nbytes = more * (some[0].nbytes if some else 0)
            found.append(Growing(shape, dtype, more, nbytes, graph, _holder(some)))
    return sorted(found, key=lambda group: (group.graph, group.nbytes, group.more), reverse=True)


def _live() -> list[torch.Tensor]:
    return [each for each in gc.get_objects() if issubclass(type(each), torch.Tensor)]


def _kind(tensor: torch.Tensor) -> Kind:
    return tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."), tensor.grad_fn is not None


def _holder(tensors: list[torch.Tensor]) -> str:
    """The container that most of them are in, by the name it goes by."""
    containers: Counter[int] = Counter()
    by_id: dict[int, Any] = {}
    for place in range(min(50, len(tensors))):  # no slice: that list would hold them too
        for holder in gc.get_referrers(tensors[place]):
            if holder is tensors or not isinstance(holder, (list, dict, tuple, set)):
                continue
            containers[id(holder)] += 1
            by_id[id(holder)] = holder
    if not containers:
        return "something that Python does not show"
    return _name(by_id[containers.most_common(1)[0][0]])


def _name(thing: Any) -> str:
    """How a reader would find it: a variable of a module or function, or an attribute of an object."""
    for frame in _frames():
        for name, value in frame.f_locals.items():
            if value is thing:
                where = "" if frame.f_code.co_name == "<module>" else f" in {frame.f_code.co_name}()"
                return f"the {type(thing).__name__} {name}{where} ({frame.f_code.co_filename}:{frame.f_lineno})"
    for module in list(sys.modules.values()):
        for name, value in list(getattr(module, "__dict__", {}).items()):
            if value is thing:
                return f"the {type(thing).__name__} {module.__name__}.{name}"
    holders = gc.get_referrers(thing)
    for holder in holders:
        owners = gc.get_referrers(holder) if isinstance(holder, dict) else [holder]
        owner = next((each for each in owners if _attribute(each, thing)), None)  # Python 3.11 has no dict for most
        if owner is not None:
            return f"the {type(thing).__name__} {type(owner).__name__}.{_attribute(owner, thing)}"
        if isinstance(holder, CellType) and (function := _closure(holder)):
            return f"a {type(thing).__name__} in the closure of {function}"
    return f"a {type(thing).__name__} of {len(thing)} entries"


def _attribute(owner: Any, thing: Any) -> str:
    """The name by which an object holds a thing."""
    if isinstance(owner, (dict, list, tuple, set, ModuleType, FrameType)):
        return ""
    return next((str(name) for name, value in getattr(owner, "__dict__", {}).items() if value is thing), "")


def _closure(cell: CellType) -> str:
    """The function that holds a cell; functions of this file hold some themselves while they look."""
    for holder in gc.get_referrers(cell):
        for function in gc.get_referrers(holder) if isinstance(holder, tuple) else ():
            if isinstance(function, FunctionType) and function.__module__ != __name__:
                return function.__qualname__
    return ""


def _frames() -> list[Any]:
    frame: Any = inspect.currentframe()
    found = []
    while frame is not None:
        if not frame.f_code.co_filename.endswith("live_tensors.py"):
            found.append(frame)
        frame = frame.f_back
    return found
