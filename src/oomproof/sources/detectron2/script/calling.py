"""Calls of a followed script: arguments meet parameters, functions and classes of the script are followed."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from oomproof.sources.detectron2.script import arguments, decorating, generators, looking_up, training_steps
from oomproof.sources.detectron2.script.contents import (
    REMEMBERS,
    Call,
    Class,
    Foreign,
    Function,
    Items,
    Parts,
    Ref,
    Run,
    Super,
    Unknown,
)
from oomproof.sources.detectron2.script.knowing import iterate_value, shorten_code

if TYPE_CHECKING:
    from oomproof.sources.detectron2.script.reader import Reader

REST = "**"
"""stands for keyword arguments that are not known"""


def call_at(reader: Reader, node: ast.Call, scope: Ref) -> Call:
    """The arguments of a call; ``*these`` and ``**those`` are laid out where they are known."""
    given: list[Any] = []
    words: dict[str, Any] = {}
    for each in node.args:
        if isinstance(each, ast.Starred):
            items = iterate_value(reader, reader.evaluate(each.value, scope))
            if items is None:
                words[REST] = Unknown(shorten_code(each.value))
                break
            given += items
        else:
            given.append(reader.evaluate(each, scope))
    for word in node.keywords:
        value = reader.evaluate(word.value, scope)
        if word.arg is not None:
            words[word.arg] = value
            continue
        content = reader.memory.get(value)
        if isinstance(content, Parts) and content.kind == "dict":
            words.update({str(name): part for name, part in content.parts.items()})
        else:
            words[REST] = Unknown(shorten_code(word.value))
    return Call(tuple(given), words, node)


def call_function(reader: Reader, function: Function, call: Call) -> Any:
    if not function.marks & REMEMBERS:
        return _follow_call(reader, function, call)
    key = (function.node, function.scope, call.given, tuple(call.words.items()))
    known = reader.memory[reader.results]
    if isinstance(known, Parts) and key in known.parts:
        return known.parts[key]
    value = _follow_call(reader, function, call)
    known = reader.memory[reader.results]
    if isinstance(known, Parts):
        reader.memory[reader.results] = replace(known, parts={**known.parts, key: value})
    return value


def _follow_call(reader: Reader, function: Function, call: Call) -> Any:
    if not reader.enter(function.node):
        return Unknown(getattr(function.node, "name", "lambda"))
    parts = bind(reader, function, call)
    owner = reader.owners.get(function.node)
    scope = reader.memory.new(Parts("scope", parts, function.scope))
    if owner is not None and call.given:
        reader.memory[scope] = Parts("scope", {**parts, "super": Super(call.given[0], owner)}, function.scope)
    file, reader.file = reader.file, function.file
    block, reader.block, reader.block_to_come = reader.block, reader.block_to_come, None
    yields, reader.yields = reader.yields, None
    before = decorating.remember_configs(reader) if function.around else {}
    try:
        if isinstance(function.node, ast.Lambda):
            return reader.evaluate(function.node.body, scope)
        body = function.node.body
        if reader.block is None and generators.is_generator(function.node):
            return generators.run_generator(reader, function, lambda: reader.follow_function(body, scope))
        value = reader.follow_function(body, scope)
        return decorating.after_call(reader, function, value, before) if function.around else value
    finally:
        reader.file, reader.block, reader.yields = file, block, yields
        reader.leave()


def bind(reader: Reader, function: Function, call: Call) -> dict[str, Any]:
    """What each parameter is. What neither the call nor a default gives is not known."""
    spec, defaults, given, words = function.node.args, dict(function.defaults), call.given, call.words
    plain = [each.arg for each in (*spec.posonlyargs, *spec.args)]
    every = [*plain, *(each.arg for each in spec.kwonlyargs)]
    parts: dict[str, Any] = dict(zip(plain, given, strict=False))
    parts.update({name: value for name, value in words.items() if name in every})
    for name in every:
        if name in parts:
            continue
        if REST in words:
            parts[name] = words[REST]
        elif name in defaults:
            parts[name] = defaults[name]
        else:
            parts[name] = arguments.namespace(reader) if name in arguments.NAMES else Unknown(name)
    if spec.vararg is not None:
        parts[spec.vararg.arg] = words[REST] if REST in words else tuple(given[len(plain) :])
    if spec.kwarg is not None:
        others = {name: value for name, value in words.items() if name not in every}
        parts[spec.kwarg.arg] = words[REST] if REST in words else reader.memory.new(Parts("dict", others))
    return parts


def define_class(reader: Reader, node: ast.ClassDef, scope: Ref) -> Ref:
    bases = tuple(reader.evaluate(base, scope) for base in node.bases)
    inner = reader.memory.new(Parts("class", {}, scope))
    cls = reader.memory.new(Class(node, scope, reader.file, bases, {}))
    for each in node.body:
        if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)):
            reader.owners[each] = cls
    reader.follow(node.body, inner)
    content = reader.memory[inner]
    attributes = dict(content.parts) if isinstance(content, Parts) else {}
    if any(word.arg == "metaclass" and not ast.unparse(word.value).endswith("ABCMeta") for word in node.keywords):
        attributes = {
            name: value if isinstance(value, Function) else Unknown(f"{node.name}.{name}, which has a metaclass")
            for name, value in attributes.items()
        }
    reader.memory[cls] = Class(node, scope, reader.file, bases, attributes)
    for base in bases:
        init = looking_up.find_attribute(reader, base, "__init_subclass__")
        if isinstance(init, Function):
            words = {word.arg or REST: reader.evaluate(word.value, scope) for word in node.keywords}
            call_function(reader, init, Call((cls,), words, node))
            break
    return cls


def make_object(reader: Reader, cls: Ref, call: Call) -> Any:
    content = reader.memory[cls]
    if not isinstance(content, Class):
        return Unknown("a class")
    reader.classes_made.add(content.node)
    made = reader.memory.new(Parts("object", {}, cls))
    init = looking_up.find_attribute(reader, cls, "__init__")
    bases = looking_up.foreign_bases(reader, cls)
    if isinstance(init, Function):
        call_function(reader, init, replace(call, given=(made, *call.given)))
    elif _is_record(content, bases):
        fields = _fields(reader, cls, call)
        first = _only_for_init(reader, cls)
        kept = {name: value for name, value in fields.items() if name not in first}
        reader.memory[made] = Parts("object", kept, cls)
        after_init(reader, made, tuple(fields[name] for name in first), call.node)
    elif training_steps.is_trainer(bases):
        training_steps.begin(reader, bases[0], call, self=made)
    if isinstance(reader.memory[made], Run):
        training_steps.follow_methods(reader, made)
    return made


_AFTER_INIT = ("__post_init__", "__attrs_post_init__", "model_post_init")


def after_init(reader: Reader, made: Ref, given: tuple[Any, ...], node: ast.AST) -> None:
    """What a record of the script does with its fields once they are set."""
    for name in _AFTER_INIT:
        method = looking_up.find_method(reader, made, name)
        if isinstance(method, Function):
            more = (Unknown("context"),) if name == "model_post_init" else given
            reader.call(method, Call((made, *more), {}, node))


def _only_for_init(reader: Reader, cls: Ref) -> list[str]:
    """Fields of a dataclass that only its ``__post_init__`` is given."""
    content = reader.memory[cls]
    assert isinstance(content, Class)
    above = [name for base in content.bases if isinstance(reader.memory.get(base), Class)
             for name in _only_for_init(reader, base)]  # fmt: skip
    own = [
        each.target.id
        for each in content.node.body
        if isinstance(each, ast.AnnAssign)
        and isinstance(each.target, ast.Name)
        and "InitVar" in ast.unparse(each.annotation)
    ]
    return [*above, *own]


def _is_record(content: Class, bases: Sequence[str]) -> bool:
    marks = {ast.unparse(each).partition("(")[0].rpartition(".")[2] for each in content.node.decorator_list}
    return (
        bool(marks & {"dataclass", "define", "frozen", "attrs", "s"}) or "NamedTuple" in bases or "BaseModel" in bases
    )


def _fields(reader: Reader, cls: Ref, call: Call) -> dict[str, Any]:
    """The fields of a dataclass: what is given, else the default, else not known."""
    content = reader.memory[cls]
    assert isinstance(content, Class)
    parts: dict[str, Any] = {}
    for base in reversed(content.bases):
        if isinstance(reader.memory.get(base), Class):
            parts.update(_fields(reader, base, Call((), {}, call.node)))
    for each in content.node.body:
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            name = each.target.id
            parts[name] = _default(reader, content, each, name)
    parts.update(zip(parts, call.given, strict=False))
    if REST in call.words:
        parts = dict.fromkeys(parts, call.words[REST])
    return {**parts, **{name: value for name, value in call.words.items() if name in parts}}


def _default(reader: Reader, content: Class, node: ast.AnnAssign, name: str) -> Any:
    """``field(default=4)`` and ``field(default_factory=lambda: [4])`` as well as plain values."""
    value = node.value
    if value is None:
        return Unknown(name)
    if isinstance(value, ast.Call) and ast.unparse(value.func).rpartition(".")[2] in ("field", "Field"):
        words = {word.arg: word.value for word in value.keywords}
        if "default" in words:
            return reader.evaluate(words["default"], content.scope)
        if "default_factory" in words:
            factory = reader.evaluate(words["default_factory"], content.scope)
            if isinstance(factory, Foreign) and factory.last in ("list", "dict"):
                return reader.memory.new(Items(()) if factory.last == "list" else Parts("dict"))
            return reader.call(factory, Call((), {}, value))
        return Unknown(name)
    return content.attributes.get(name, Unknown(name))
