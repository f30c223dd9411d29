"""Nothing of a trace outlives it.

Libraries keep tensors that they need again: anchors in ``functools.lru_cache``, position tables in a dictionary of
their module. What they keep while a step is traced is fake, and a real step in the same process would die of it. So
what is still there when a trace is over is followed back to what was there before, and taken out of it.
"""

from __future__ import annotations

import gc
import sys
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from types import FrameType, ModuleType
from typing import Any

import torch

from oomproof.frameworks.torch import FakeTensor
from oomproof.trace.torch.around.forgotten_attributes import forget_attributes

_CACHED = type(lru_cache(int))
_WITHOUT_ATTRIBUTES = (dict, list, tuple, set)
_FAR = 8
"""containers and objects between a cache and a tensor in it"""


@dataclass(frozen=True, eq=False)
class Leftovers:
    fakes: list[torch.Tensor]
    made: set[int]
    """all objects that the trace has made and that are still there, by their ids"""


def find_leftovers() -> Leftovers:
    """Of what was made since ``gc.freeze``: nothing older is looked at, so that this takes no time."""
    gc.collect()
    made = gc.get_objects()
    return Leftovers([each for each in made if type(each) is FakeTensor], set(map(id, made)))


def let_go(left: Leftovers) -> None:
    """Takes fake tensors out of caches, dictionaries, lists, sets and attributes that live on."""
    if not left.fakes:
        return
    modules = [module for module in list(sys.modules.values()) if isinstance(module, ModuleType)]
    namespaces = {id(vars(module)) for module in modules}
    held: dict[int, Any] = {id(each): each for each in left.fakes}
    holders: dict[int, Any] = {}
    front: list[Any] = list(left.fakes)
    for _ in range(_FAR):
        own = {id(each) for each in (left.fakes, front, held, holders)}
        found = [each for each in gc.get_referrers(*front) if id(each) not in own and not isinstance(each, FrameType)]
        namespaces.update(id(names) for names in (getattr(each, "__dict__", None) for each in found) if names)
        holders.update((id(each), each) for each in found)
        front = [each for each in found if id(each) in left.made and id(each) not in held]
        held.update((id(each), each) for each in front)
        if not front:
            break
    own = {id(each) for each in (left.fakes, front, held, holders)}
    owners = _owners(holders.values(), modules, own)
    namespaces.update(id(vars(each)) for each in owners if not isinstance(each, type))
    for holder in holders.values():
        if id(holder) not in namespaces and not _is_of_a_class(holder):
            _empty(holder, held)
    held = {key: each for key, each in held.items() if isinstance(each, (FakeTensor, tuple))}  # the rest is empty now
    for owner in (*owners, *holders.values()):
        if id(owner) not in held and type(owner) not in _WITHOUT_ATTRIBUTES and not isinstance(owner, torch.Tensor):
            forget_attributes(owner, held)


def _owners(holders: Iterable[Any], modules: Iterable[ModuleType], own: set[int]) -> list[Any]:
    """Those whose attributes are among the dictionaries that hold something."""
    names = [each for each in holders if type(each) is dict and id(each) not in own]
    if not names:
        return []
    ids = {id(each) for each in names}
    found = [module for module in modules if id(vars(module)) in ids]
    with_names = [each for each in gc.get_referrers(*names) if id(each) not in own and each is not names]
    return found + [each for each in with_names if isinstance(each, type) or id(getattr(each, "__dict__", None)) in ids]


def _is_of_a_class(holder: Any) -> bool:
    """The names of a class: a cached method is emptied, not taken away."""
    return type(holder) is dict and "__module__" in holder and "__doc__" in holder


def _empty(holder: Any, held: dict[int, Any]) -> None:
    if isinstance(holder, _CACHED):
        holder.cache_clear()
    elif isinstance(holder, dict):
        for key in [key for key, value in holder.items() if id(value) in held or id(key) in held]:
            if not _is_of_a_thread(key):
                _drop(holder, key)
    elif type(holder) is list:
        holder[:] = [each for each in holder if id(each) not in held]
    elif type(holder) is set:
        holder -= {each for each in holder if id(each) in held}


def _is_of_a_thread(key: Any) -> bool:
    """Under such a key ``threading.local`` keeps what a thread has. CPython (3.11) goes on using that, whether it is
    still there or not: what is in it can be taken out, itself it cannot."""
    return isinstance(key, weakref.ref) and type(key()).__name__ == "_localdummy"


def _drop(holder: dict[Any, Any], key: Any) -> None:
    """Also from dictionaries of libraries that refuse, as the outputs of transformers' models do (5.22)."""
    try:
        del holder[key]
    except Exception:  # whatever their own __delitem__ raises
        plain = OrderedDict if isinstance(holder, OrderedDict) else dict
        with suppress(KeyError):
            plain.__delitem__(holder, key)


@contextmanager
def model_given_back(model: torch.nn.Module) -> Iterator[None]:
    """A model that the user goes on with gets its own weights, layers, hooks and attributes back."""
    before = [(vars(module), _copy_attributes(vars(module))) for module in model.modules()]
    gradients = [(each, each.grad) for each in model.parameters()]
    try:
        yield
    finally:
        for attributes, kept in before:
            attributes.clear()
            for name, (value, content) in kept.items():
                attributes[name] = value
                if content is not None:
                    value.clear()
                    value.update(content)
        for parameter, gradient in gradients:
            parameter.grad = gradient


def _copy_attributes(attributes: dict[str, Any]) -> dict[str, tuple[Any, dict[Any, Any] | None]]:
    """Every attribute, and what is in it where it is a dictionary: there modules keep their weights and layers."""
    return {name: (value, dict(value) if isinstance(value, dict) else None) for name, value in attributes.items()}
