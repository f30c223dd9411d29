"""Parts of Detectron2 that a script puts its own in place of: ``DefaultTrainer.build_train_loader = mine``."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from oomproof.sources.detectron2.script import loading, optimizers
from oomproof.sources.detectron2.script.contents import Foreign, Run, Unknown
from oomproof.sources.detectron2.script.knowing import shorten_code

if TYPE_CHECKING:
    from oomproof.sources.detectron2.script.reader import Reader

_OF_NO_MATTER = frozenset(("evaluation", "visualizer", "logger", "events", "checkpoint", "datasets"))
"""modules of Detectron2 that have no part in a step"""


def note(reader: Reader, of: Foreign, name: str, value: Any, node: ast.AST) -> None:
    parts = of.name.split(".")
    if (parts[0] == "detectron2" or of.last.endswith("Trainer")) and not _OF_NO_MATTER & set(parts):
        where = f"{reader.at(node)}: {of.last}.{name} is replaced by {shorten_code(node)}"
        reader.replaced[f"{of.name}.{name}"] = (value, where)


def tell(reader: Reader, run: Run) -> Run:
    """The training, with what was replaced by then and may change it."""
    for name, (_, where) in reader.replaced.items():
        if name.rpartition(".")[2] in loading.BUILDERS:
            run = loading.take_loaders(run, None, where)
        elif name.endswith(f".{optimizers.BUILDER}"):
            run = replace(run, training={**run.training, "optimizer": Unknown(where)})
        guess = f"{where}; forecast is Detectron2's own"
        run = replace(run, config=replace(run.config, guesses=tuple(dict.fromkeys((*run.config.guesses, guess)))))
    return run
