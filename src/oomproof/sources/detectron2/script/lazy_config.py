"""LazyConfig files: Python whose values are a config, which only Detectron2 can run. They are told, not read."""

from __future__ import annotations

import ast
from pathlib import Path

from oomproof.errors import InputError
from oomproof.sources.detectron2.script.script import parse_file
from oomproof.sources.detectron2.vitdet.published import find_vitdet, full_name, list_vitdet
from oomproof.sources.detectron2.vitdet.settings import BATCH

_PARTS = {"dataloader", "lr_multiplier", "optimizer", "train"}
"""what such a file has beside its model"""


def is_lazy_config(path: Path) -> bool:
    """Whether the file is one, or a script that trains with one: it makes parts with LazyCall, or takes a model over
    from another such file."""
    try:
        tree = parse_file(path)
    except InputError:
        return False
    if any(isinstance(node, ast.Call) and _name_of(node.func) == "get_cfg" for node in ast.walk(tree)):
        return False
    if _loads_one(tree):
        return True
    names = _names_of_module(tree)
    from_others = any(_takes_over(node) for node in ast.walk(tree))
    return "LazyCall" in names or (from_others and "model" in names and bool(names & _PARTS))


def refuse_lazy_config(path: Path) -> InputError:
    known = full_name("/".join(path.parts[-2:]))
    example = find_vitdet(known or list_vitdet()[0]).name
    as_published = f"detectron2:{example} is that one as it is published" if known else f"such as {example}"
    what = "trains with" if _loads_one(parse_file(path)) else "is"
    return InputError(
        f"{path} {what} a LazyConfig, which only Detectron2 can run: it is not read. ViTDet's published configs are "
        f"known by name ({as_published}), with --set {BATCH}=8 and the like; give other models as FILE.py:FUNCTION "
        "(docs/jobs.md)"
    )


def _loads_one(tree: ast.Module) -> bool:
    """``LazyConfig.load(args.config_file)``: Detectron2's own lazyconfig_train_net.py, and scripts like it."""
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return any(isinstance(each, ast.Attribute) and ast.unparse(each) == "LazyConfig.load" for each in calls)


def _names_of_module(tree: ast.Module) -> set[str]:
    """What the file imports or assigns, under the imported name."""
    names: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return names


def _takes_over(node: ast.AST) -> bool:
    """``from .other import model``, or ``model_zoo.get_config("common/models/x.py")``."""
    if isinstance(node, ast.ImportFrom):
        return node.level > 0
    if not isinstance(node, ast.Call) or _name_of(node.func) != "get_config" or not node.args:
        return False
    given = node.args[0]
    return isinstance(given, ast.Constant) and str(given.value).endswith(".py")


def _name_of(called: ast.expr) -> str:
    return called.id if isinstance(called, ast.Name) else called.attr if isinstance(called, ast.Attribute) else ""
