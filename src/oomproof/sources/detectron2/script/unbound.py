"""Methods that are called by their class, ``dict.update(settings, ...)``, and functions that do what methods do."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from oomproof.sources.detectron2.script import config_steps
from oomproof.sources.detectron2.script.contents import Call, Foreign, Items, Method, Parts, Ref, Section, Unknown
from oomproof.sources.detectron2.script.knowing import NotKnown, require_known, shorten_code

if TYPE_CHECKING:
    from oomproof.sources.detectron2.script.reader import Reader

_CLASSES = ("dict", "list", "object", "CN", "CfgNode", "OrderedDict")
_SETTERS = ("__setattr__", "__setitem__", "setitem")
_IN_PLACE = frozenset(("shuffle", "heapify", "heappush", "heappop", "insort", "insort_left", "insort_right"))
"""functions that change the list they are given"""
_MODULES = ("random", "heapq", "bisect", "np", "numpy")


def call_unbound(reader: Reader, called: Foreign, call: Call) -> tuple[Any, ...]:
    """What it gives; empty where it is something else."""
    first = call.given[0] if call.given else None
    content = reader.memory.get(first)
    *above, last = called.name.split(".")
    if last in _IN_PLACE and above and above[0] in _MODULES and isinstance(first, Ref) and isinstance(content, Items):
        reader.memory[first] = Unknown(shorten_code(call.node))
        return ()
    is_class = bool(above) and above[-1] in (*_CLASSES, "operator")
    if not is_class or not (isinstance(first, Section) or isinstance(content, (Items, Parts))):
        return ()
    if last in _SETTERS and len(call.given) == 3:
        _set(reader, first, call)
        return (None,)
    kinds = isinstance(content, Items) or isinstance(first, Section) or getattr(content, "kind", "") == "dict"
    return (reader.call(Method(first, last), replace(call, given=call.given[1:])),) if kinds else ()


def _set(reader: Reader, of: Any, call: Call) -> None:
    _, name, value = call.given
    content = reader.memory.get(of)
    try:
        place = require_known(reader, name)
    except NotKnown:
        if isinstance(of, Section):
            config_steps.lose(reader, of, call.node)
        else:
            reader.memory[of] = Unknown(shorten_code(call.node))
        return
    if isinstance(of, Section):
        config_steps.set_key(reader, of, str(place), value, call.node)
    elif isinstance(content, Parts):  # past a __setattr__ of its own
        reader.memory[of] = replace(content, parts={**content.parts, place: value})
    elif isinstance(content, Items) and isinstance(place, int) and -len(content.items) <= place < len(content.items):
        items = list(content.items)
        items[place] = value
        reader.memory[of] = Items(tuple(items))
