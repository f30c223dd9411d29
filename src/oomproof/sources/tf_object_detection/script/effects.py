"""What statements change beside what they name: lists and dictionaries in place, names outside of a function."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping

from oomproof.sources.tf_object_detection.script.folding import read_dotted_name

IN_PLACE = frozenset(
    [
        "append",
        "extend",
        "insert",
        "remove",
        "pop",
        "popitem",
        "clear",
        "update",
        "setdefault",
        "sort",
        "reverse",
        "add",
        "discard",
    ]
)
"""methods of lists, dictionaries and sets that change them"""
_LEAVE_CONFIGS = frozenset(
    {
        *sys.stdlib_module_names, "object_detection", "tensorflow", "tf_slim", "google", "nets", "official", "numpy",
        "absl", "six", "PIL", "cv2", "matplotlib", "pandas", "IPython", "wandb", "mlflow",
    }
)  # fmt: skip
"""packages that do not change a config that they are given, but by the calls that are followed"""
_HARMLESS = frozenset(
    {
        "print", "len", "str", "repr", "type", "isinstance", "hasattr", "dir", "id", "bool", "sorted", "format", "hash",
        "callable", "display", "pprint", "super", "list", "tuple", "set", "dict", "enumerate", "zip", "iter", "next",
        "reversed", "any", "all", "sum", "min", "max",
    }
)  # fmt: skip
_REWRITES = re.compile(r"\b(sed|perl)\b.* -\w*i|\bsponge\b")
_PASSIVE_DECORATORS = frozenset(["staticmethod", "classmethod", "property", "cache", "lru_cache", "wraps", "function"])


def changed_in_place(node: ast.AST) -> str:
    """The name of what a statement or call changes in place, by a method or an item; empty for none."""
    match node:
        case ast.Call(func=ast.Attribute(value=of, attr=name)) if name in IN_PLACE:
            return read_dotted_name(of)
        case ast.Subscript(value=of, ctx=ast.Store() | ast.Del()):
            return read_dotted_name(of)
        case ast.Attribute(value=of, ctx=ast.Store() | ast.Del()):
            return read_dotted_name(of)
    return ""


def names_changed(tree: ast.AST) -> set[str]:
    """Everything that is changed in place anywhere within."""
    return {changed_in_place(node) for node in ast.walk(tree)} - {""}


def names_changed_outside(function: ast.FunctionDef) -> set[str]:
    """Names outside of a function that mean something else after a call of it."""
    declared = {
        name
        for node in ast.walk(function)
        if isinstance(node, (ast.Global, ast.Nonlocal))
        for name in node.names
    }  # fmt: skip
    own = {each.arg for each in _parameters(function)}
    own |= {node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    changed = {name for name in names_changed(function) if name.partition(".")[0] not in own - declared}
    return declared | changed


def parameters_changed(function: ast.FunctionDef) -> set[str]:
    """Parameters whose lists or dictionaries a function changes."""
    changed = {name.partition(".")[0] for name in names_changed(function)}
    return {each.arg for each in _parameters(function)} & changed


def _parameters(function: ast.FunctionDef) -> Iterator[ast.arg]:
    of = function.args
    yield from (*of.posonlyargs, *of.args, *of.kwonlyargs, *(each for each in (of.vararg, of.kwarg) if each))


def is_wrapped(function: ast.FunctionDef) -> bool:
    """Whether a decorator may give a function other arguments, or do more than it says."""
    names = [
        read_dotted_name(each.func if isinstance(each, ast.Call) else each) for each in function.decorator_list
    ]  # fmt: skip
    return any(name.rpartition(".")[2] not in _PASSIVE_DECORATORS for name in names)


def imported_names(tree: ast.Module) -> dict[str, str]:
    """By name: the package that it comes from; "." for one of the script's own folder."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for each in node.names:
                package = each.name.partition(".")[0]
                found[each.asname or package] = package
        elif isinstance(node, ast.ImportFrom):
            package = "." if node.level else (node.module or "").partition(".")[0]
            found.update({each.asname or each.name: package for each in node.names})
    return found


def may_change_configs(called: ast.expr, imports: Mapping[str, str]) -> bool:
    """Whether a function comes from somewhere that is not read here, and may do anything with what it is given."""
    package = imports.get(read_dotted_name(called).partition(".")[0])
    return package is not None and package not in _LEAVE_CONFIGS


def leaves_alone(called: ast.expr, own: Collection[str], imports: Mapping[str, str]) -> bool:
    """Whether a function changes no config that it is given. ``own``: names of the script's own classes. Of methods of
    other objects, which take a config to print or to build something of it, that is assumed."""
    if isinstance(called, ast.Name):
        if called.id in own or called.id in imports:
            return not may_change_configs(called, imports)
        return called.id in _HARMLESS
    return isinstance(called, ast.Attribute) and called.attr not in ("partial", "reduce", "starmap")


def parts_of(value: ast.expr) -> Iterator[ast.expr]:
    """A value, and what is in it where it is a list, a tuple or a dictionary that is written there."""
    yield value
    if isinstance(value, (ast.List, ast.Tuple, ast.Set)):
        for each in value.elts:
            yield from parts_of(each)
    elif isinstance(value, ast.Dict):
        for each in value.values:
            yield from parts_of(each)
    elif isinstance(value, ast.Starred):
        yield from parts_of(value.value)


def rewrites_files(call: ast.Call) -> bool:
    """``os.system("sed -i ...")`` and what is like it."""
    texts = [each.value for each in ast.walk(call) if isinstance(each, ast.Constant)]
    words = " ".join(each for each in texts if isinstance(each, str))
    return bool(_REWRITES.search(words)) or read_dotted_name(call.func) == "fileinput.input"


def call_in(target: ast.expr) -> ast.Call | None:
    """The call that ``options.add().crop.area`` begins with."""
    while isinstance(target, (ast.Attribute, ast.Subscript)):
        target = target.value
    return target if isinstance(target, ast.Call) else None


def with_name(target: ast.expr, call: ast.Call, name: str) -> ast.expr:
    """``options.add().crop.area`` with a name in the place of the call."""
    if target is call:
        return ast.copy_location(ast.Name(name, ast.Load()), call)
    assert isinstance(target, (ast.Attribute, ast.Subscript))
    inner = with_name(target.value, call, name)
    made = (
        ast.Attribute(inner, target.attr, target.ctx)
        if isinstance(target, ast.Attribute)
        else ast.Subscript(inner, target.slice, target.ctx)
    )
    return ast.copy_location(made, target)


def root_of(value: ast.expr) -> str:
    """The name that an expression such as ``some[0].part`` begins with."""
    while isinstance(value, (ast.Attribute, ast.Subscript)):
        value = value.value
    return value.id if isinstance(value, ast.Name) else ""


def calls_within(value: ast.AST) -> Iterable[ast.Call]:
    return (node for node in ast.walk(value) if isinstance(node, ast.Call))


def as_choices(statement: ast.Match) -> ast.stmt:
    """``match`` as a chain of ``if``; a pattern that is more than values is a condition that is not known."""
    rest: list[ast.stmt] = []
    for case in reversed(statement.cases):
        test = _test_of(case.pattern, statement.subject)
        if case.guard is not None:
            test = ast.BoolOp(ast.And(), [test, case.guard])
        rest = [ast.copy_location(ast.If(test, case.body, rest), statement)]
    return ast.fix_missing_locations(rest[0])


def _test_of(pattern: ast.pattern, subject: ast.expr) -> ast.expr:
    match pattern:
        case ast.MatchValue(value=value):
            return ast.Compare(subject, [ast.Eq()], [value])
        case ast.MatchSingleton(value=single):
            return ast.Compare(subject, [ast.Is()], [ast.Constant(single)])
        case ast.MatchAs(pattern=None, name=None):
            return ast.Constant(True)
        case ast.MatchOr(patterns=patterns):
            return ast.BoolOp(ast.Or(), [_test_of(each, subject) for each in patterns])
    return ast.Call(ast.Name("match", ast.Load()), [subject], [])  # stands for what is not known
