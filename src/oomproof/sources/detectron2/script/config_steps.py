"""What a script does to a config: keys that are set, files and lists that are merged."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oomproof.errors import InputError
from oomproof.files.looking import is_there
from oomproof.sources.detectron2.config.config import (
    COMMAND_LINE,
    OVERRULED,
    Config,
    Origin,
    from_defaults,
    merge_file,
    override_config,
)
from oomproof.sources.detectron2.config.schema import DEFAULTS, SECTIONS
from oomproof.sources.detectron2.config.values import check_value
from oomproof.sources.detectron2.script import own_keys, sections
from oomproof.sources.detectron2.script.contents import Call, Made, Parts, Ref, Section, Unknown
from oomproof.sources.detectron2.script.knowing import NotKnown, require_known, shorten_code
from oomproof.sources.detectron2.zoo.configs import find_published

if TYPE_CHECKING:
    from oomproof.sources.detectron2.script.reader import Reader

_CHANGES = frozenset(
    ("merge_from_other_cfg", "update", "__setitem__", "__setattr__", "__delitem__", "setdefault", "pop", "popitem",
     "clear", "__ior__")
)  # fmt: skip
"""methods of a config that change keys"""
ANSWER = "write cfg.dump() of a run to a YAML file and give that instead of the script"
"""to a user whose config only a run tells"""


def new(reader: Reader, config: Config | None = None) -> Section:
    ref = reader.memory.new(Made(config or from_defaults(str(reader.path))))
    reader.configs.append(ref)
    return Section(ref)


def defaults_of_detectron2(reader: Reader) -> Section:
    """``from detectron2.config.defaults import _C``: projects add their keys to it and give copies of it."""
    if reader.defaults is None:
        reader.defaults = new(reader).of
        reader.configs.remove(reader.defaults)
    return Section(reader.defaults)


def of_zoo(reader: Reader, name: Any, node: ast.AST) -> Section:
    """``model_zoo.get_config(name)``"""
    made = new(reader)
    _merge_file(reader, made.of, name, node)
    return made


def set_key(reader: Reader, section: Section, last: str, value: Any, node: ast.AST) -> None:
    """``cfg.KEY = value``, which Detectron2 neither checks nor refuses."""
    key, where = f"{section.prefix}.{last}".lstrip("."), reader.at(node)
    made = reader.memory[section.of]
    if not isinstance(made, Made):
        return
    config, own = made.config, made.own
    if key in SECTIONS and isinstance(value, (Section, Unknown)):
        config, own = _with_section(reader, made, key, value, node)
    elif key in SECTIONS and isinstance(parts := reader.memory.get(value), Parts):
        sections.replace_section(reader, section, key, parts, node)
        return
    elif key not in DEFAULTS:
        own = {**own, key: value}
        if project := own_keys.find_project(reader, section):
            config = replace(config, guesses=tuple(dict.fromkeys((*config.guesses, project))))
        else:
            config = replace(config, notes=(*config.notes, *own_keys.note_unknown_key(reader, made, key, node, where)))
    else:
        try:
            config = _with(config, key, _as_usual(key, require_known(reader, value), where), where)
        except NotKnown as reason:
            said = shorten_code(node)
            because = "" if str(reason) in said else f" ({reason})"
            config = _without(config, key, f"{where}: {key} = {said}{because} is not known before the script runs")
        except InputError as error:
            config = _without(config, key, str(error))
    reader.memory[section.of] = replace(made, config=config, touched=made.touched + 1, own=own)


def _with_section(reader: Reader, made: Made, key: str, value: Section | Unknown, node: ast.AST) -> Any:
    """``cfg.MODEL = other.MODEL``: every key below is that of the other config."""
    where, config = reader.at(node), made.config
    inside = [each for each in DEFAULTS if each.startswith(f"{key}.")]
    other = reader.memory.get(value.of) if isinstance(value, Section) and value.prefix == key else None
    if not isinstance(other, Made):
        for each in inside:
            why = f"{where}: {each} comes with {shorten_code(node)}, which is not known before the script runs"
            config = _without(config, each, why)
        return config, made.own
    for each in inside:
        unknown = other.config.unknown.get(each)
        config = _with(config, each, other.config.values[each], other.config.origins.get(each, where))
        config = config if unknown is None else _without(config, each, unknown)
    more = {name: part for name, part in other.own.items() if name.startswith(f"{key}.")}
    return config, {**made.own, **more, key: value}


def read_now(reader: Reader, made: Made) -> Config:
    """The config with the sections that it shares with another, as these are now."""
    for key, value in made.own.items():
        if key in SECTIONS and isinstance(value, Section):
            config, _ = _with_section(reader, made, key, value, ast.Name(key))
            made = replace(made, config=config)
    return made.config


def _with(config: Config, key: str, value: Any, where: Origin) -> Config:
    unknown = {name: why for name, why in config.unknown.items() if name != key}
    origins = {**config.origins, key: where}
    return replace(config, values={**config.values, key: value}, origins=origins, unknown=unknown)


def is_from(config: Config, key: str, value: Any) -> bool:
    """Whether a value may be that of the config."""
    if isinstance(value, Unknown) or key in config.unknown:
        return isinstance(value, Unknown) and key in config.unknown
    return bool(value == config.values[key])


def overrule(config: Config, key: str, value: Any, code: str, where: Origin | None = None) -> Config:
    """Other code than the config decides what a key stands for, so that no plan can change it there."""
    said = f"{code} decides {key} for the training, {OVERRULED}"
    if isinstance(value, Unknown) or where is None:
        config = _without(config, key, f"{said}, and is not known before the script runs")
    else:
        config = _with(config, key, value, where)
    return replace(config, guesses=(*config.guesses, said))


def _without(config: Config, key: str, why: str) -> Config:
    return replace(config, unknown={**config.unknown, key: why})


def _as_usual(key: str, new: Any, where: Origin) -> Any:
    """The value in the type that the key has. Code may set any type; these two work as well."""
    if type(new) is int and type(DEFAULTS[key]) is float:
        return float(new)
    if type(new) is int and key == "INPUT.MIN_SIZE_TRAIN":
        return (new,)
    if new is None and DEFAULTS[key] is not None:
        raise InputError(f"{where}: {key} is set to None, which Detectron2 cannot train with")
    return check_value(key, str(new) if isinstance(new, Path) else new, str(where))


def call_method(reader: Reader, section: Section, name: str, call: Call) -> Any:
    """``cfg.merge_from_file(...)`` and its like; most methods change nothing."""
    made = reader.memory[section.of]
    if not isinstance(made, Made):
        return None
    if name == "clone":
        own = {key: value for key, value in made.own.items() if key not in SECTIONS}
        copy = new(reader).of
        reader.memory[copy] = replace(made, config=read_now(reader, made), touched=0, own=own)
        return Section(copy, section.prefix)
    if name in sections.READS:
        return sections.read_section(reader, section, name, call)
    first = call.every[0] if call.every else None
    if name == "merge_from_file" and call.every:
        _merge_file(reader, section.of, first, call.node)
    elif name == "merge_from_list" and call.every:
        _merge_list(reader, section.of, first, call.node)
    elif name == "merge_from_other_cfg" and isinstance(first, Section) and not first.prefix:
        _merge_other(reader, section.of, first)
    elif name == "merge_from_other_cfg" and isinstance(parts := reader.memory.get(first), Parts):
        sections.set_parts(reader, section, parts, call.node)
    elif name == "set_new_allowed":
        reader.memory[section.of] = replace(made, takes_new_keys=True)
    elif name in ("__setitem__", "__setattr__") and len(call.given) == 2:
        _set_by_name(reader, section, call)
    elif name in ("setdefault", "pop", "update") and _change_as_dict(reader, section, name, call):
        return None
    elif name in _CHANGES:
        _lose(
            reader, section.of, f"{reader.at(call.node)}: {shorten_code(call.node)} takes keys from elsewhere", ANSWER
        )
    return None if name in sections.GIVE_NOTHING else Unknown(shorten_code(call.node))


def _set_by_name(reader: Reader, section: Section, call: Call) -> None:
    try:
        name = str(require_known(reader, call.given[0]))
    except NotKnown:
        lose(reader, section, call.node)
        return
    set_key(reader, section, name, call.given[1], call.node)


def _change_as_dict(reader: Reader, section: Section, name: str, call: Call) -> bool:
    """``cfg.setdefault("MY_KEY", 3)``, ``cfg.SOLVER.update({"BASE_LR": 0.1})``: a config is a dict as well. False where
    it is not known what changes."""
    content = reader.memory.get(call.given[0]) if call.given else Parts("dict")
    if name == "update":
        if not isinstance(content, Parts) or content.kind != "dict" or "**" in call.words:
            return False
        for key, value in {**content.parts, **call.words}.items():
            set_key(reader, section, str(key), value, call.node)
        return True
    made = reader.memory[section.of]
    try:
        key = f"{section.prefix}.{require_known(reader, call.given[0])}".lstrip(".")
    except (NotKnown, IndexError):
        return False
    if not isinstance(made, Made) or (name == "pop" and (key in DEFAULTS or key in SECTIONS)):
        return False
    if name == "pop":
        own = {each: value for each, value in made.own.items() if each != key}
        reader.memory[section.of] = replace(made, own=own)
    elif key not in DEFAULTS and key not in SECTIONS and key not in made.own:
        own = {**made.own, key: call.given[1] if len(call.given) > 1 else None}
        reader.memory[section.of] = replace(made, own=own)
    return True


def _merge_file(reader: Reader, made: Ref, name: Any, node: ast.AST) -> None:
    content = reader.memory[made]
    assert isinstance(content, Made)
    try:
        file = str(require_known(reader, name) or "")  # None is what an option without a default is
    except NotKnown:
        file = ""
    folder, given = Path(reader.file).parent, False
    absent = bool(file) and file not in reader.written and not _is_there(file, folder)
    if (not file or absent) and _may_be_given(reader, made, content, node):
        reader.config_file_used, file, folder, given = True, reader.config_file, Path(), True
        reader.config_file_places |= {node, made}
    elif file == reader.config_file:
        folder = Path()
    if not file:
        said = shorten_code(node.args[0]) if isinstance(node, ast.Call) and node.args else "that"
        why = f"{reader.at(node)}: which config file {said} is, is not known before the script runs"
        _lose(
            reader,
            made,
            why,
            f"give a second file by KEY VALUE, or {ANSWER}" if reader.config_file else "give it: --config-file FILE",
        )
        return
    if file in reader.written:
        _lose(reader, made, f"{reader.at(node)}: the script itself writes {file}, which it merges here", ANSWER)
        return
    if absent and not given:
        why = f"{reader.at(node)}: there is no file {file}, nor does Detectron2 publish a config of that name"
        _lose(reader, made, why, "check the path, or give it: --config-file FILE")
        return
    reader.memory[made] = replace(
        content,
        config=merge_file(content.config, file, folder, own_keys.find_own_keys(content)),
        touched=content.touched + 1,
        has_given_file=content.has_given_file or given,
    )


def _is_there(file: str, folder: Path) -> bool:
    return is_there(folder / file) or is_there(file) or find_published(file) is not None


def _may_be_given(reader: Reader, made: Ref, content: Made, node: ast.AST) -> bool:
    """Whether a file that nobody knows is the one that the user names: once for each config, where the same code
    merges it into several, and on each of two ways that lead to the same config."""
    seen = reader.config_file_places
    return bool(reader.config_file) and not content.has_given_file and (not seen or bool({node, made} & seen))


def _merge_list(reader: Reader, made: Ref, pairs: Any, node: ast.AST) -> None:
    content = reader.memory[made]
    assert isinstance(content, Made)
    try:
        wanted = require_known(reader, pairs)
    except NotKnown as reason:
        _lose(reader, made, f"{reader.at(node)}: merge_from_list({reason}) is not known before the script runs", ANSWER)
        return
    if not isinstance(wanted, (list, tuple)):
        return
    where = COMMAND_LINE if reader.overrides and list(wanted) == list(reader.overrides) else str(reader.at(node))
    reader.memory[made] = replace(
        content,
        config=override_config(content.config, wanted, where, own_keys.find_own_keys(content)),
        touched=content.touched + 1,
    )


def _merge_other(reader: Reader, made: Ref, other: Section) -> None:
    content, more = reader.memory[made], reader.memory[other.of]
    if isinstance(content, Made) and isinstance(more, Made):
        values = {**content.config.values, **more.config.values}
        unknown = {**content.config.unknown, **more.config.unknown}
        origins = {**content.config.origins, **more.config.origins}
        config = replace(content.config, values=values, unknown=unknown, origins=origins)
        reader.memory[made] = replace(content, config=config, touched=content.touched + 1)


def _lose(reader: Reader, made: Ref, why: str, answer: str) -> None:
    """From here on no key is known that is not set later."""
    content = reader.memory[made]
    assert isinstance(content, Made)
    lost = dict.fromkeys(DEFAULTS, f"{why}; {answer}")
    config = replace(
        content.config, unknown={**lost, **content.config.unknown}, lost=content.config.lost or f"{why}; {answer}"
    )
    reader.memory[made] = replace(content, config=config, touched=content.touched + 1)


def lose(reader: Reader, section: Section, node: ast.AST) -> None:
    """``cfg[name] = value`` with a name that is not known."""
    _lose(
        reader,
        section.of,
        f"{reader.at(node)}: which key {shorten_code(node)} sets is not known before the script runs",
        ANSWER,
    )


def guess(reader: Reader, section: Section, why: str) -> None:
    """Code that may change the config and is not known here: said, and nothing is written on its account."""
    content = reader.memory[section.of]
    if isinstance(content, Made):
        config = content.config
        config = replace(config, guesses=(*config.guesses, why))
        reader.memory[section.of] = replace(content, config=config, takes_new_keys=True)


def lose_all(reader: Reader, made: Ref, why: str) -> None:
    """Code that may set any key."""
    if isinstance(reader.memory.get(made), Made):
        _lose(reader, made, f"{why}, which is not known before the script runs", ANSWER)


def forget(reader: Reader, made: Ref, key: str, why: str) -> None:
    content = reader.memory.get(made)
    if isinstance(content, Made):
        reader.memory[made] = replace(content, config=_without(content.config, key, why))
