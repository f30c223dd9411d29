"""Attributes that a trace has left fake tensors in, as code leaves them that fills a table when it first needs it.

What was there before is not known. It is told from the code: a name that the class has, or that ``__init__`` gives a
value, was there with nothing in it (``self.table = None``); another was made by the trace (``hasattr(self, "table")``)
and goes.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from types import FunctionType, GetSetDescriptorType, MemberDescriptorType, ModuleType
from typing import Any

_OF_CLASSES = (FunctionType, classmethod, staticmethod, property, GetSetDescriptorType, MemberDescriptorType)


def forget_attributes(owner: Any, held: Mapping[int, Any]) -> None:
    """Takes what is held out of an object's, a class's or a module's attributes."""
    for name in [name for name, value in _attributes(owner) if id(value) in held]:
        with suppress(Exception):  # a class that guards its attributes
            if _was_there_before(owner, name):
                setattr(owner, name, None)
            else:
                delattr(owner, name)


def _attributes(owner: Any) -> Iterator[tuple[str, Any]]:
    yield from list(getattr(owner, "__dict__", {}).items())
    for kind in type(owner).__mro__:
        slots = vars(kind).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            with suppress(AttributeError):
                yield name, object.__getattribute__(owner, name)


def _was_there_before(owner: Any, name: str) -> bool:
    if isinstance(owner, ModuleType):
        return True  # ``global TABLE`` needs a TABLE
    if isinstance(owner, FunctionType):  # ``hasattr(find, "table")`` has the name among its constants
        return name not in owner.__code__.co_consts
    if isinstance(owner, threading.local):  # empty in a new thread, so that all code asks first
        return False
    if isinstance(owner, type):  # what a class is made with comes before its methods, or what Python adds to it
        names = list(vars(owner))
        return any(isinstance(vars(owner)[each], _OF_CLASSES) for each in names[names.index(name) :])
    makers = [vars(kind)["__init__"] for kind in type(owner).__mro__ if "__init__" in vars(kind)]
    written = [each.__code__.co_names for each in makers if isinstance(each, FunctionType)]
    if any(name in names for names in written):
        return True
    in_class = any(name in vars(kind) for kind in type(owner).__mro__)
    return not written and not in_class  # a namespace, which is made with all its names
