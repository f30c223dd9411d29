"""Names and attributes of a followed script."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from oomproof.sources.detectron2.config.schema import DEFAULTS, SECTIONS
from oomproof.sources.detectron2.script import arguments, choosing
from oomproof.sources.detectron2.script.contents import (
    Call,
    Class,
    Foreign,
    Function,
    Made,
    Method,
    Partial,
    Parts,
    Ref,
    Run,
    Section,
    Super,
    Unknown,
)

if TYPE_CHECKING:
    from oomproof.sources.detectron2.script.reader import Reader

_ITSELF = ("model", "_trainer", "trainer", "module")
"""of a trainer: what leads to the same training"""
PROPERTIES = frozenset(("property", "cached_property"))
_OF_PATHS = ("parent", "name", "stem", "suffix")


def name(reader: Reader, wanted: str, scope: Ref) -> Any:
    """What a name stands for; what nobody defined is something of another module."""
    at: Ref | None = scope
    while at is not None:
        content = reader.memory[at]
        if not isinstance(content, Parts):
            break
        if wanted in content.parts.get("<global>", ()):
            content = reader.memory[top_scope(reader, at)]
            return content.parts.get(wanted, Foreign(wanted)) if isinstance(content, Parts) else Unknown(wanted)
        if wanted in content.parts:
            return content.parts[wanted]
        at = content.above
    return arguments.namespace(reader) if wanted in arguments.NAMES else Foreign(wanted)


def top_scope(reader: Reader, scope: Ref) -> Ref:
    """The module around a scope."""
    content = reader.memory[scope]
    while isinstance(content, Parts) and content.above is not None:
        scope, content = content.above, reader.memory[content.above]
    return scope


def scope_to_set(reader: Reader, name: str, scope: Ref) -> Ref:
    """Where an assignment to a name goes: ``global`` and ``nonlocal`` lead to a scope further out."""
    content = reader.memory[scope]
    if not isinstance(content, Parts):
        return scope
    if name in content.parts.get("<global>", ()):
        return top_scope(reader, scope)
    if name not in content.parts.get("<nonlocal>", ()):
        return scope
    at = content.above
    while at is not None and isinstance(around := reader.memory[at], Parts):
        if name in around.parts and around.kind != "class":
            return scope_to_set(reader, name, at)
        at = around.above
    return scope


def attribute(reader: Reader, of: Any, wanted: str) -> Any:
    match of:
        case Unknown(why, configs, choices):
            ways = [_perhaps(reader, each, wanted) for each in choices if isinstance(each, Ref)]
            return choosing.one_of(f"{why}.{wanted}", [Unknown("", configs), *ways])
        case Foreign(name):
            value, _ = reader.replaced.get(f"{name}.{wanted}", (Foreign(f"{name}.{wanted}"), ""))
            return value
        case PurePath() if wanted in _OF_PATHS:
            return getattr(of, wanted)
        case Function(node) if wanted in ("__name__", "__qualname__"):
            return getattr(node, "name", "<lambda>")
    way = _WAYS.get(type(of))
    return way(reader, of, wanted) if way is not None else Method(of, wanted)


def _perhaps(reader: Reader, of: Ref, wanted: str) -> Any:
    """An attribute of one of several things; reading it may run code, where it is a property."""
    return reader.either_value(wanted, lambda: attribute(reader, of, wanted), lambda: Unknown(wanted))


def _of_config(reader: Reader, of: Section, wanted: str) -> Any:
    made = reader.memory[of.of]
    key = f"{of.prefix}.{wanted}".lstrip(".")
    if not isinstance(made, Made):
        return Unknown(key)
    if key in made.own:
        return made.own[key]
    if key in made.config.unknown:
        return Unknown(key)
    if key in DEFAULTS:
        return made.config.values[key]
    return Section(of.of, key) if key in SECTIONS or wanted.isupper() else Method(of, wanted)


def _of_content(reader: Reader, of: Ref, wanted: str) -> Any:
    content = reader.memory[of]
    match content:
        case Unknown(why):
            return Unknown(f"{why}.{wanted}")
        case Parts(kind="arguments"):
            return arguments.argument(reader, content, wanted)
        case Class(node):
            named = wanted in ("__name__", "__qualname__")
            return node.name if named else of_class(reader, of, wanted, of, bound_to_class=True)
        case Parts() | Run():
            return _of_object(reader, of, content, wanted)
    return Method(of, wanted)


def _of_object(reader: Reader, of: Ref, content: Parts | Run, wanted: str) -> Any:
    if wanted == "__class__" and (cls := find_class(reader, of)) is not None:
        return cls
    if find_attribute(reader, content.above, "__getattribute__") is not None:
        return Unknown(f"__getattribute__ of {wanted}")
    if wanted in content.parts and not (isinstance(content, Parts) and content.kind == "dict"):
        return content.parts[wanted]
    if isinstance(content, Run) and wanted in _ITSELF:
        return of
    if isinstance(content, Parts) and content.kind == "object" and content.above is None:
        return Unknown(wanted)  # a namespace
    return of_class(reader, content.above, wanted, of) if content.above is not None else Method(of, wanted)


def of_class(reader: Reader, cls: Ref, wanted: str, self: Any, *, bound_to_class: bool = False) -> Any:
    """An attribute of a class or of one that it is based on, as seen from ``self``."""
    found = find_attribute(reader, cls, wanted)
    if found is None:
        return Method(self, wanted)
    if isinstance(getter := find_method(reader, found, "__get__"), Function):
        return reader.call(getter, Call((found, None if bound_to_class else self, cls), {}, getter.node))
    return _bind(reader, cls, found, self, bound_to_class=bound_to_class) if isinstance(found, Function) else found


def _bind(reader: Reader, cls: Ref, found: Function, self: Any, *, bound_to_class: bool) -> Any:
    if "staticmethod" in found.marks:
        return found
    if "classmethod" in found.marks:
        return Partial(found, (cls,))
    if bound_to_class:
        return found
    method = Partial(found, (self,))
    return reader.call(method, Call((), {}, found.node)) if found.marks & PROPERTIES else method


def find_attribute(reader: Reader, cls: Any, wanted: str) -> Any:
    """What a class of the script has under a name, itself or by its bases; None where none of them has it."""
    for each in order_classes(reader, cls):
        content = reader.memory.get(each)
        if isinstance(content, Class) and wanted in content.attributes:
            return content.attributes[wanted]
    return None


def order_classes(reader: Reader, cls: Any) -> list[Any]:
    """A class and what it is based on, in the order in which Python looks for attributes; other code's among them."""
    content = reader.memory.get(cls)
    if not isinstance(content, Class):
        return [cls]
    if (cls, content.bases) in reader.orders:
        return reader.orders[cls, content.bases]
    lines = [*(order_classes(reader, base) for base in content.bases), list(content.bases)]
    order = [cls]
    while lines := [line for line in lines if line]:
        heads = [line[0] for line in lines]
        free = (head for head in heads if not any(head in line[1:] for line in lines))
        chosen = next(free, heads[0])  # Python refuses classes that have none
        order.append(chosen)
        lines = [[each for each in line if each != chosen] for line in lines]
    reader.orders[cls, content.bases] = order
    return order


def find_class(reader: Reader, of: Any) -> Any:
    """The class of an object or trainer of the script; None of anything else."""
    content = reader.memory.get(of)
    is_object = isinstance(content, Run) or (isinstance(content, Parts) and content.kind == "object")
    return content.above if is_object else None


def find_classes(reader: Reader, of: Any) -> list[Ref]:
    """The script's classes that an object, or a class, has its attributes from."""
    cls = of if isinstance(reader.memory.get(of), Class) else find_class(reader, of)
    return [each for each in order_classes(reader, cls) if isinstance(reader.memory.get(each), Class)]


def find_method(reader: Reader, of: Any, wanted: str) -> Any:
    """What the class of an object of the script has under a name; None where it has nothing."""
    return find_attribute(reader, find_class(reader, of), wanted)


def foreign_bases(reader: Reader, cls: Any) -> list[str]:
    """The last names of all classes of other modules that a class is based on."""
    return [each.last for each in order_classes(reader, cls) if isinstance(each, Foreign)]


def classes_above(reader: Reader, of: Super) -> list[Any]:
    """Where ``super()`` looks: behind the class it is written in, in the order of the object's own class."""
    cls = of.self if isinstance(reader.memory.get(of.self), Class) else find_class(reader, of.self)
    order = order_classes(reader, cls)
    order = order if of.owner in order else order_classes(reader, of.owner)
    return order[order.index(of.owner) + 1 :]


def _of_super(reader: Reader, of: Super, wanted: str) -> Any:
    for each in classes_above(reader, of):
        content = reader.memory.get(each)
        if isinstance(content, Class) and wanted in content.attributes:
            found = content.attributes[wanted]
            own = of.self if isinstance(reader.memory.get(of.self), Class) else find_class(reader, of.self) or each
            return _bind(reader, own, found, of.self, bound_to_class=False) if isinstance(found, Function) else found
    return Method(of, wanted)


_WAYS: dict[type, Callable[[Any, Any, str], Any]] = {Section: _of_config, Super: _of_super, Ref: _of_content}
