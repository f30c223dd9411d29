"""The arguments of a script: what ``argparse`` gives where the command line gives nothing."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from oomproof.sources.detectron2.script.contents import Items, Parts, Ref, Unknown
from oomproof.sources.detectron2.script.knowing import iterate_value

if TYPE_CHECKING:
    from oomproof.sources.detectron2.script.reader import Reader

NAMES = ("args", "opt", "arguments", "flags")
"""what people call them, where a launcher passes them on"""
_CONFIG_FILE = re.compile(r"(config|cfg|yaml)(_?(file|path|yaml|fname|name))?")
_SWITCHES = {"store_true": False, "store_false": True}
_OF_DETECTRON2 = {"config_file": "", "num_machines": 1, "machine_rank": 0}
"""what its ``default_argument_parser`` adds, besides ``num_gpus``"""
_TRAINING = {"eval_only": False, "resume": False}
"""as they are when something is trained anew"""


@dataclass(frozen=True)
class Argument:
    """One ``add_argument`` of the script."""

    name: str
    default: ast.expr | None
    kind: str
    given: bool
    """whether the command line has to give it"""
    flags: tuple[str, ...] = ()
    many: bool = False
    """whether it takes more or fewer values than one"""
    choices: bool = False
    """whether its values are listed: mostly ways of a script"""


def find_arguments(tree: ast.Module) -> dict[str, Argument]:
    found: dict[str, Argument] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
            argument = _read_argument(node)
            if argument.name:  # else it is worked out where the script runs
                found[argument.name] = _join_arguments(found.get(argument.name), argument)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "set_defaults":
            for word in node.keywords:
                found[word.arg or ""] = Argument(word.arg or "", word.value, "", given=False)
    return found


def _join_arguments(one: Argument | None, other: Argument) -> Argument:
    """Two parsers of a script may have one argument with two defaults: which is meant, only a command line tells."""
    if one is None or (one.kind, _code(one.default)) == (other.kind, _code(other.default)):
        return other
    return replace(other, default=None, given=True)


def _code(node: ast.expr | None) -> str:
    return "" if node is None else ast.unparse(node)


def _read_argument(node: ast.Call) -> Argument:
    flags = [each.value for each in node.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    words = {word.arg: word.value for word in node.keywords if word.arg}
    long = next((flag for flag in flags if flag.startswith("--")), flags[0] if flags else "")
    dest, action, kind = words.get("dest"), words.get("action"), words.get("type")
    name = str(dest.value) if isinstance(dest, ast.Constant) else long.lstrip("-").replace("-", "_")
    default = words.get("default")
    if isinstance(action, ast.Constant) and action.value in _SWITCHES and default is None:
        default = ast.Constant(_SWITCHES[action.value])
    optional = long.startswith("-") and not _is_true(words.get("required"))
    many = words.get("nargs")
    needed = not optional and not (isinstance(many, ast.Constant) and many.value in ("?", "*"))
    written = ast.unparse(kind) if kind is not None else ""
    optional_flags = tuple(flag for flag in flags if flag.startswith("-"))
    given = needed and default is None
    return Argument(name, default, written, given, optional_flags, many is not None, "choices" in words)


def _is_true(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def namespace(reader: Reader, given: Any = None) -> Ref:
    """``parser.parse_args()``; ``given`` is the list that it parses, where the script has one."""
    parts: dict[str, Any] = {}
    texts = iterate_value(reader, given)
    for place, text in enumerate(texts if isinstance(texts, list) and not isinstance(given, str) else ()):
        flag, has_value, value = text.partition("=") if isinstance(text, str) else ("", "", "")
        found = _find_flag(reader, flag)
        if found is None:
            if not flag.startswith("-"):  # perhaps of a positional argument
                parts.update(
                    {name: Unknown(f"args.{name}") for name, each in reader.arguments.items() if not each.flags}
                )
            continue
        usual = found.default
        if found.many:
            parts[found.name] = Unknown(f"args.{found.name}")
        elif isinstance(usual, ast.Constant) and isinstance(usual.value, bool) and not has_value:
            parts[found.name] = not usual.value
        else:
            follows = texts[place + 1] if texts and place + 1 < len(texts) else Unknown(f"args.{found.name}")
            parts[found.name] = _convert_text(value if has_value else follows, found.kind)
    return reader.memory.new(Parts("arguments", parts))


def _find_flag(reader: Reader, text: str) -> Argument | None:
    """``--batch``, ``-b`` and, where only one begins so, ``--bat``."""
    if not text.startswith("-"):
        return None
    every = reader.arguments.values()
    exact = [each for each in every if text in each.flags]
    begun = [each for each in every if text[:2] == "--" and any(flag.startswith(text) for flag in each.flags)]
    found = exact or begun
    return found[0] if len(found) == 1 else None


def argument(reader: Reader, content: Parts, wanted: str) -> Any:
    if reader.config_file and _CONFIG_FILE.fullmatch(wanted):
        reader.config_file_used = True
        return reader.config_file
    if wanted == "opts" and wanted not in content.parts:  # KEY VALUE behind the job
        return reader.memory.new(Items(tuple(reader.overrides)))
    if wanted == "num_gpus" and reader.has_detectron2s_parser:
        return reader.gpus_given
    if wanted == "config_file" and wanted not in (*content.parts, *reader.arguments):
        reader.config_file_left_out = reader.has_detectron2s_parser
    plain = {**(_OF_DETECTRON2 if reader.has_detectron2s_parser else {}), **content.parts, **_TRAINING}
    return plain[wanted] if wanted in plain and wanted not in reader.arguments else _default(reader, content, wanted)


def _default(reader: Reader, content: Parts, wanted: str) -> Any:
    if wanted in content.parts:
        return content.parts[wanted]
    found = reader.arguments.get(wanted)
    if found is None or found.given:
        return Unknown(f"args.{wanted}")
    value = None if found.default is None else _convert_text(reader.evaluate(found.default, reader.module), found.kind)
    if reader.open_arguments and (found.choices or value in (None, False, "")):
        return Unknown(f"args.{wanted}")
    reader.defaults_taken[wanted] = value
    return value


def _convert_text(value: Any, kind: str) -> Any:
    """Texts go through the argument's type, as in argparse."""
    if not isinstance(value, str) or kind in ("", "str"):
        return value
    try:
        return {"int": int, "float": float}[kind](value)
    except (KeyError, ValueError):  # a function of the script, perhaps
        return Unknown(f"{kind}({value!r})")
