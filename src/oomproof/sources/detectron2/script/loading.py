"""Loaders that a script builds itself: their batch, and how large images become, where the config has no say in it."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from oomproof.sources.detectron2.script import config_steps, looking_up, mapping
from oomproof.sources.detectron2.script.contents import (
    BatchLoader,
    Call,
    Function,
    Items,
    Made,
    Ref,
    Run,
    Section,
    Unknown,
)
from oomproof.sources.detectron2.script.knowing import NotKnown, require_known, shorten_code

if TYPE_CHECKING:
    from oomproof.sources.detectron2.script.reader import Reader

BUILDERS = ("build_detection_train_loader", "build_batch_data_loader", "build_train_loader")
_BATCH = "SOLVER.IMS_PER_BATCH"
_KEYS = {
    "total_batch_size": _BATCH,
    "aspect_ratio_grouping": "DATALOADER.ASPECT_RATIO_GROUPING",
    "num_workers": "DATALOADER.NUM_WORKERS",
}
"""arguments of Detectron2's loaders that stand above a key"""
_PLACES = {("build_batch_data_loader", "total_batch_size"): 2}


def record(reader: Reader, name: str, call: Call) -> None:
    """A loader is built."""
    config = next((each for each in call.every if isinstance(each, Section) and not each.prefix), None)
    made = reader.memory.get(config.of) if config is not None else None
    keys: list[tuple[str, Any, str]] = []
    for word, key in _KEYS.items():
        place = _PLACES.get((name, word), len(call.given))
        if word in call.words or place < len(call.given):
            keys.append((key, _know_value(reader, call.get(word, place)), f"{word}={_code(call, word, place)}"))
        elif key == _BATCH and isinstance(made, Made):
            value = Unknown(key) if key in made.config.unknown else made.config.values[key]
            keys.append((key, value, ""))
    if not any(key == _BATCH for key, _, _ in keys):
        keys.append((_BATCH, Unknown(name), shorten_code(call.node)))
    mapper = call.get("dataset", 0) if name == "build_batch_data_loader" else call.words.get("mapper")
    loader = BatchLoader(reader.at(call.node), tuple(keys), mapping.find_sizes(reader, mapper))
    content = reader.memory[reader.loaders]
    before = content.items if isinstance(content, Items) else (content,)
    reader.memory[reader.loaders] = Items((*before, loader))


def _know_value(reader: Reader, value: Any) -> Any:
    try:
        return require_known(reader, value)
    except NotKnown as reason:
        return Unknown(str(reason))


def _code(call: Call, word: str, place: int) -> str:
    node = call.node
    if not isinstance(node, ast.Call):
        return word
    usual = node.args[place] if place < len(node.args) else node
    return shorten_code(next((each.value for each in node.keywords if each.arg == word), usual))


def follow_own_loader(reader: Reader, run: Ref) -> None:
    """``build_train_loader`` of a trainer of the script's own."""
    content = reader.memory[run]
    method = looking_up.find_method(reader, run, "build_train_loader")
    if method is not None and not isinstance(method, Function) and isinstance(content, Run):
        whose = "build_train_loader is other code than the script's"
        reader.memory[run] = take_loaders(content, None, f"{reader.path}: {whose}")
    if not isinstance(method, Function) or not isinstance(content, Run):
        return
    before = reader.memory[reader.loaders]
    reader.memory[reader.loaders] = Items(())
    config = content.parts.get("cfg", Unknown("cfg"))
    reader.call(method, Call((config,) if "staticmethod" in method.marks else (run, config), {}, method.node))
    found, after = reader.memory[reader.loaders], reader.memory[run]
    reader.memory[reader.loaders] = before
    if isinstance(after, Run):
        whose = f"{method.file}:{method.node.lineno}: build_train_loader is code of the script"
        reader.memory[run] = take_loaders(after, found, whose)


def take_loaders(run: Run, found: Any, whose: str) -> Run:
    """The training with the batches of its loader. Where that is none which is known, or one of several, they have to
    be given."""
    loaders = set(found.items) if isinstance(found, Items) else set()
    loader = loaders.pop() if len(loaders) == 1 else None
    config = run.config
    if not isinstance(loader, BatchLoader):
        config = config_steps.overrule(config, _BATCH, Unknown(whose), f"{whose}, which")
        return replace(run, config=config, training={**run.training, "image_size": Unknown(whose)})
    for key, value, code in loader.keys:
        if not (config_steps.is_from(config, key, value) and (not code or key.rpartition(".")[2] in code)):
            config = config_steps.overrule(config, key, value, f"{loader.where}: {code or 'the loader'}", loader.where)
    sizes = {"image_size": Unknown(loader.sizes)} if loader.sizes else {}
    return replace(run, config=config, training={**run.training, **sizes})
