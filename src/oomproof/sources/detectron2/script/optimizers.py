"""The optimizer that a script builds by itself: from a config, Detectron2 always builds SGD."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from oomproof.sources.detectron2.script import looking_up
from oomproof.sources.detectron2.script.contents import (
    Call,
    Foreign,
    Function,
    Method,
    Optimizer,
    Ref,
    Run,
    Section,
    Unknown,
)

if TYPE_CHECKING:
    from oomproof.sources.detectron2.script.reader import Reader

BUILDER = "build_optimizer"
CLASSES = {"SGD": "own", "Adam": "adam", "AdamW": "adamw", "RMSprop": "rmsprop", "Adafactor": "adafactor"}
"""of torch.optim, and the value of the setting that stands for each"""
_OF_DETECTRON2 = Optimizer("own")
_CLIPPED = ("maybe_add_gradient_clipping", "maybe_add_full_model_gradient_clipping")
"""functions that give back the optimizer, or the class of one, that they get behind the config"""


def make_foreign(reader: Reader, called: Foreign, call: Call) -> Any:
    """What a call of other code builds; None where that is no optimizer."""
    if called.last in _CLIPPED:
        return next((each for each in call.every if is_kind(each)), None)
    if called.last in CLASSES:
        return note(reader, Optimizer(CLASSES[called.last]))
    detectron2s = "." not in called.name or "detectron2" in called.name.split(".")
    return note(reader, _OF_DETECTRON2) if called.last == BUILDER and detectron2s else None


def is_kind(value: Any) -> bool:
    return isinstance(value, Optimizer) or (isinstance(value, Foreign) and value.last in CLASSES)


def note(reader: Reader, made: Optimizer) -> Optimizer:
    reader.optimizers.add(made)
    return made


def follow_builder(reader: Reader, run: Ref) -> None:
    """``build_optimizer`` of a trainer of the script's own."""
    content = reader.memory[run]
    method = looking_up.find_method(reader, run, BUILDER)
    if not isinstance(content, Run) or method is None or "optimizer" in content.training:
        return
    if not isinstance(method, Function):
        unknown = Unknown(f"{reader.path}: {BUILDER}, which is other code than the script's")
        reader.memory[run] = replace(content, training={**content.training, "optimizer": unknown})
        return
    config = content.parts.get("cfg", Unknown("cfg"))
    itself = content.above if "classmethod" in method.marks else run
    first = () if "staticmethod" in method.marks else (itself,)
    runs = list(reader.runs)
    made = reader.call(method, Call((*first, config, run), {}, method.node))
    reader.runs = runs
    where = f"{method.file}:{method.node.lineno}: {BUILDER}"
    after = reader.memory[run]
    if isinstance(after, Run):
        kind = read_kind(made, where, method.node)
        reader.memory[run] = replace(after, training={**after.training, "optimizer": kind})


def given_to(reader: Reader, call: Call) -> dict[str, Any]:
    """The optimizer of ``SimpleTrainer(model, loader, optimizer)``."""
    made = call.get("optimizer", 2)
    if made is None or isinstance(made, Section) or (isinstance(made, Foreign) and "." not in made.name):
        return {}  # a trainer of the script's own may take other things, or names that nobody defines
    if isinstance(made, Method) and made.name == "optimizer":
        return {}  # that of another trainer
    return {"optimizer": read_kind(made, reader.at(call.node))}


def of_loop(reader: Reader, run: Run) -> Run:
    """A training whose loop is the script's own takes the one optimizer that it makes."""
    kinds = {each.kind for each in reader.optimizers}
    if "optimizer" in run.training or not run.by_hand or kinds <= {_OF_DETECTRON2.kind}:
        return run
    kind = kinds.pop() if len(kinds) == 1 else Unknown(f"{reader.path}: which of its optimizers trains")
    return replace(run, training={**run.training, "optimizer": kind})


def read_kind(made: Any, where: object, code: ast.AST | None = None) -> Any:
    """The setting's value; of a class that code is not seen to make, the only one that it names."""
    if isinstance(made, Optimizer):
        return made.kind
    names = {_last_name(node) for node in ast.walk(code)} & CLASSES.keys() if code is not None else set()
    return CLASSES[names.pop()] if len(names) == 1 else Unknown(f"{where}")


def _last_name(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
