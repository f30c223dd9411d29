"""``a += b`` and ``del a[0]`` in a followed script: lists and dicts change for everybody who has them."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from oomproof.sources.detectron2.script import config_steps, looking_up, operators
from oomproof.sources.detectron2.script.contents import Items, Parts, Ref, Section, Unknown
from oomproof.sources.detectron2.script.knowing import FAILURES, NotKnown, require_known, shorten_code

if TYPE_CHECKING:
    from oomproof.sources.detectron2.script.reader import Reader


def change_in_place(reader: Reader, node: ast.AugAssign, scope: Ref) -> None:
    now = ast.parse(ast.unparse(node.target), mode="eval").body
    before = reader.evaluate(now, scope)
    code = ast.copy_location(ast.BinOp(now, node.op, node.value), node)
    if looking_up.find_class(reader, before) is not None:
        found = operators.call_operator(reader, code, before, reader.evaluate(node.value, scope), in_place=True)
        reader.assign(node.target, found[0] if found else Unknown(shorten_code(node)), node.value, scope)
        return
    value = reader.evaluate(code, scope)
    content = reader.memory.get(before)
    if isinstance(before, Ref) and (isinstance(content, Items) or _is_dict(content)):
        after = reader.memory.get(value)
        reader.memory[before] = after if isinstance(after, (Items, Parts)) else Unknown(shorten_code(node))
        value = before
    reader.assign(node.target, value, ast.copy_location(node.value, node), scope)


def delete(reader: Reader, target: ast.expr, scope: Ref) -> None:
    match target:
        case ast.Tuple() | ast.List():
            for each in target.elts:
                delete(reader, each, scope)
        case ast.Subscript():
            _delete_item(reader, target, scope)
        case ast.Attribute():
            _forget_part(reader, reader.evaluate(target.value, scope), target.attr, target)
        case ast.Name():
            reader.set_name(target.id, Unknown(f"{target.id}, which was deleted"), scope)


def _delete_item(reader: Reader, target: ast.Subscript, scope: Ref) -> None:
    of = reader.evaluate(target.value, scope)
    content = reader.memory.get(of)
    try:
        if isinstance(content, Items):
            items = list(content.items)
            del items[_place(reader, target.slice, scope)]
            reader.memory[of] = Items(tuple(items))
        else:
            _forget_part(reader, of, require_known(reader, reader.evaluate(target.slice, scope)), target)
    except (NotKnown, *FAILURES):
        if content is not None:
            reader.memory[of] = Unknown(shorten_code(target))


def _place(reader: Reader, node: ast.expr, scope: Ref) -> Any:
    if not isinstance(node, ast.Slice):
        return require_known(reader, reader.evaluate(node, scope))
    ends = (node.lower, node.upper, node.step)
    return slice(*(each and require_known(reader, reader.evaluate(each, scope)) for each in ends))


def _forget_part(reader: Reader, of: Any, name: Any, target: ast.expr) -> None:
    content = reader.memory.get(of)
    if isinstance(of, Section):
        config_steps.lose(reader, of, target)
    elif isinstance(content, Parts):
        reader.memory[of] = replace(content, parts={key: part for key, part in content.parts.items() if key != name})


def _is_dict(content: Any) -> bool:
    return isinstance(content, Parts) and content.kind == "dict"
