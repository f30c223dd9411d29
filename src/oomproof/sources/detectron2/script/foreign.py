"""Calls of what is not in the script: Detectron2, oomproof, argparse. What is not known may change a config."""

from __future__ import annotations

import ast
import sys
from typing import TYPE_CHECKING, Any

from oomproof.sources.detectron2.script import (
    arguments,
    config_steps,
    copying,
    elsewhere,
    handing_on,
    importing,
    launching,
    mapping,
    of_python,
    optimizers,
    training_steps,
    unbound,
)
from oomproof.sources.detectron2.script.contents import Call, Foreign, Items, Parts, Run, Section, Unknown
from oomproof.sources.detectron2.script.importing import FRAMEWORKS
from oomproof.sources.detectron2.script.knowing import shorten_code

if TYPE_CHECKING:
    from oomproof.sources.detectron2.script.reader import Reader

_ENDS = ("sys.exit", "exit", "quit", "os._exit")
_NAMESPACES = ("CN", "CfgNode", "Namespace", "SimpleNamespace", "EasyDict", "edict")
_TRAINERS = ("DefaultTrainer", "SimpleTrainer", "AMPTrainer", "AccumulatingTrainer")
_GIVE_BACK = {"get_config_file": "config_path", "auto_scale_workers": "cfg"}
"""functions whose value stands for that argument; SOLVER.REFERENCE_WORLD_SIZE is heeded where GPUs are counted"""
HARMLESS = FRAMEWORKS | {"wandb", "mlflow"}
"""modules of others whose functions leave a config as it is"""


def call_foreign(reader: Reader, called: Foreign, call: Call) -> Any:
    last = called.last
    if called.name in _ENDS or called.name.endswith("parser.error"):
        reader.end()
    if called.name in importing.ADDERS:
        importing.add_folder(reader, call)
    if done := unbound.call_unbound(reader, called, call):
        return done[0]
    for answer in (_of_argparse, _of_detectron2, _of_machine, optimizers.make_foreign, _of_training):
        found = answer(reader, called, call)
        if found is not None:
            return found
    elsewhere.merge(reader, last, call)
    if called.name == "open" and "w" in str(call.get("mode", 1, "r")):
        reader.written.add(str(call.get("file", 0)))
    handing_on.hand_on(reader, called.name, call)
    if of_python.has(called):
        return of_python.call_python(reader, called, call)
    _warn_of_changes(reader, called, call)
    return called if "arser" in last else Unknown(shorten_code(call.node) if isinstance(call.node, ast.Call) else last)


def _of_argparse(reader: Reader, called: Foreign, call: Call) -> Any:
    if called.last not in ("parse_args", "parse_known_args"):
        return None
    made = arguments.namespace(reader, call.get("args", 0))
    return made if called.last == "parse_args" else (made, reader.memory.new(Items(tuple(reader.overrides))))


def _of_detectron2(reader: Reader, called: Foreign, call: Call) -> Any:
    first = call.get(_GIVE_BACK.get(called.last, "config_path"), 0)
    match called.last:
        case "get_cfg":
            return _new_config(reader, called, call)
        case "get_config" if called.name.endswith("model_zoo.get_config"):
            return config_steps.of_zoo(reader, first, call.node)
        case last if last in _GIVE_BACK:
            return first
        case "launch" if call.given:
            return launching.launch(reader, call)
    return _copy_first(reader, called, first) if called.last in ("deepcopy", "copy") else None


def _of_machine(reader: Reader, called: Foreign, call: Call) -> Any:
    if called.name.endswith("cuda.is_available"):
        return True  # what is forecast is a GPU
    return reader.gpus_given if called.last == "get_world_size" else None


def _new_config(reader: Reader, called: Foreign, call: Call) -> Section:
    made = config_steps.new(reader)
    if "." in called.name and "detectron2" not in called.name.split("."):
        root = called.name.partition(".")[0]
        said = (
            f"{reader.at(call.node)}: {called.last} of {root} adds keys and code of a project, which are not known here"
        )
        config_steps.guess(reader, made, said)
    return made


def _copy_first(reader: Reader, called: Foreign, first: Any) -> Any:
    if isinstance(first, Section):
        return config_steps.call_method(reader, first, "clone", Call((), {}, ast.Constant(None)))
    return copying.copy_value(reader, first, deep=called.last == "deepcopy")


def _of_training(reader: Reader, called: Foreign, call: Call) -> Any:
    last, first = called.last, call.get("model", 0)
    if last in _NAMESPACES:
        content = reader.memory.get(call.get("", 0))
        parts = content.parts if isinstance(content, Parts) else {}
        return reader.memory.new(Parts("object", {**parts, **call.words}))
    if training_steps.is_of_oomproof(called):
        return training_steps.call_oomproof(reader, last, call) or Unknown(last)
    if last in mapping.MAPPERS:
        return mapping.make_mapper(reader, last, call)
    if last.endswith("Trainer") or last in (*training_steps.MODELS, *training_steps.LOADERS):
        _warn_of_trainer(reader, called, call)
        return training_steps.begin(reader, last, call)
    if last in training_steps.WRAPPERS and isinstance(reader.memory.get(first), Run):
        if "gradient_as_bucket_view" in call.words:
            training_steps.say(reader, first, "gradient_as_bucket_view", call.words["gradient_as_bucket_view"])
        return first
    return None


def _warn_of_trainer(reader: Reader, called: Foreign, call: Call) -> None:
    """A trainer of other code may have loaders, steps and an optimizer of its own."""
    if not called.last.endswith("Trainer") or "." not in called.name or called.last in _TRAINERS:
        return
    for each in call.every:
        if isinstance(each, Section) and not each.prefix:
            what = f"{called.last} of {called.name.rpartition('.')[0]} is a trainer that is not known here"
            config_steps.guess(reader, each, f"{reader.at(call.node)}: {what}; forecast is Detectron2's own")


def _warn_of_changes(reader: Reader, called: Foreign, call: Call) -> None:
    """A function of other code that gets a whole config may change it."""
    project = called.last.startswith("add_") and called.last.endswith("_config")
    root = called.name.partition(".")[0]
    elsewhere = "." in called.name and root not in HARMLESS and root not in sys.stdlib_module_names
    if project:
        said = "adds keys and code of a project, which are not known here"
    elif elsewhere:
        said = f"of {root} may change the config, which is not known here"
    else:
        return
    for each in call.every:
        if isinstance(each, Section) and not each.prefix:
            config_steps.guess(reader, each, f"{reader.at(call.node)}: {called.last} {said}")
