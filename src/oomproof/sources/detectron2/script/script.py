"""A training script that makes a Detectron2 config: read as a syntax tree, never run."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from oomproof.errors import InputError
from oomproof.files.looking import is_file
from oomproof.sources.detectron2.config.config import COMMAND_LINE, Config, override_config
from oomproof.sources.detectron2.config.yaml_file import read_text
from oomproof.sources.detectron2.job import Detectron2Job, check_job
from oomproof.sources.detectron2.script.contents import Run, Unknown
from oomproof.sources.detectron2.script.reader import Reader
from oomproof.sources.script.child.notebook import without_magics

_STAGES = ("stem", "res2", "res3", "res4", "res5")
_MOST_BESIDE = 20
_OPTIONS = {"image_size": "the largest image: --image-size HxW"}
"""of the command line, for settings that have one"""
_MAKERS = {"get_cfg", "get_config"}


@dataclass(frozen=True)
class Script:
    """What a script trains: its config, and settings of the training that its code decides, or leaves open."""

    config: Config
    training: Mapping[str, Any] = field(default_factory=dict)
    open: Mapping[str, str] = field(default_factory=dict)
    """settings that its code decides, but only in a run: what to say of each"""


def is_script(path: Path) -> bool:
    """Whether the file makes a config; a file that cannot be read or parsed makes none."""
    try:
        tree = parse_file(path)
    except InputError:
        return False
    if _tree_makes_config(tree):
        return True
    ours = _imports_detectron2(tree)
    return any(_file_makes_config(each, of_detectron2=not ours) for each in _files_beside(tree, path))


def _imports_detectron2(tree: ast.Module) -> bool:
    return any(name.partition(".")[0] == "detectron2" for name, level in _imports(tree) if not level)


def _tree_makes_config(tree: ast.Module) -> bool:
    """Under whatever name: ``from detectron2.config import get_cfg as new_config``."""
    imports = any(name == "detectron2.config.get_cfg" for name, level in _imports(tree) if not level)
    return imports or any(_makes_config(node) for node in ast.walk(tree))


def _imports(tree: ast.Module) -> list[tuple[str, int]]:
    """The modules that a file imports, and how many folders up each is looked for."""
    found: list[tuple[str, int]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(alias.name, 0) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            inner = [f"{module}.{alias.name}".strip(".") for alias in node.names]
            found += [(name, node.level) for name in (module, *inner) if name]
    return found


def _files_beside(tree: ast.Module, path: Path) -> list[Path]:
    """Files near the script that it imports itself."""
    found: dict[Path, None] = {}
    for name, level in _imports(tree):
        folder = path.parent
        for _ in range(level - 1):
            folder = folder.parent
        place = folder.joinpath(*name.split("."))
        for file in (place.with_suffix(".py"), place / "__init__.py"):
            if is_file(file):
                found[file] = None
    return list(found)[:_MOST_BESIDE]


def _file_makes_config(path: Path, *, of_detectron2: bool) -> bool:
    """``of_detectron2``: only where the file itself says that its configs are Detectron2's."""
    try:
        tree = parse_file(path)
    except InputError:
        return False
    return _tree_makes_config(tree) and (_imports_detectron2(tree) or not of_detectron2)


def open_script(path: Path, overrides: Sequence[str], config_file: str = "", gpus: int = 1) -> Detectron2Job:
    """The job that the script trains, with KEY VALUE pairs over it, as over ``args.opts``. ``config_file`` is the file
    that it merges, where its code does not say which: ``--config-file FILE`` of the script's own command line, as
    ``gpus`` is its ``--num-gpus``."""
    script = follow_script(path, overrides, config_file, gpus)
    if script.config.lost:
        raise InputError(script.config.lost)
    config = override_config(script.config, overrides)
    return check_job(Detectron2Job(str(path), config, path, script.training, script.open))


def read_script(path: Path) -> Config:
    """The config at the moment when the script builds its trainer or its model, as far as its syntax tells."""
    return follow_script(path).config


def follow_script(path: Path, overrides: Sequence[str] = (), config_file: str = "", gpus: int = 1) -> Script:
    tree = parse_file(path)
    try:
        reader = _read(path, tree, overrides, config_file, gpus)
        run = reader.choose_run()
    except RecursionError:
        raise InputError(f"{path} is nested too deeply to be read; give its config as a YAML file") from None
    if config_file and not reader.config_file_used:
        raise InputError(
            f"--config-file {config_file}: {path} merges no file that its command line names; leave the option out, or "
            "check the YAML file itself"
        )
    notes = (*run.config.notes, *_notes(reader, path))
    lost = run.config.lost or (_ask_for_file(path) if reader.config_file_left_out and _has_no_file(run.config) else "")
    config = replace(run.config, path=None, notes=tuple(dict.fromkeys(notes)), lost=lost)
    return Script(config, *_training(reader, run, path))


def _has_no_file(config: Config) -> bool:
    """Whether only code has set keys: nobody trains Detectron2's bare defaults."""
    return all(origin.file.endswith(".py") or origin.file == COMMAND_LINE for origin in config.origins.values())


def _ask_for_file(path: Path) -> str:
    what = "which config file args.config_file is, is not known before the script runs"
    return f"{path}: {what}; give it: --config-file FILE"


def _read(path: Path, tree: ast.Module, overrides: Sequence[str], config_file: str, gpus: int) -> Reader:
    """Follows a script; where it trains nothing without options, as if they may be given (``--train``, ``--data DIR``);
    and where it trains nothing by itself, what others may call."""
    reader = Reader(path, tree, overrides, config_file, gpus)
    reader.read()
    if reader.finds_training():
        return reader
    with_options = Reader(path, tree, overrides, config_file, gpus, open_arguments=True)
    with suppress(InputError):  # of what a run without options does not reach
        with_options.read()
    if with_options.finds_training():
        return with_options
    reader.read_functions()
    return reader


def _notes(reader: Reader, path: Path) -> list[str]:
    others = len(reader.configs) - 1
    found = [f"{path} makes {others} more config(s), which were not looked at"] if others > 0 else []
    taken = [
        f"--{name.replace('_', '-')} {value}"
        for name, value in reader.defaults_taken.items()
        if isinstance(value, (int, float, str)) and value is not False and value != ""
    ]
    return [*found, *([f"{path}: its arguments are taken at their defaults: {', '.join(taken)}"] if taken else [])]


def _training(reader: Reader, run: Run, path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Settings that the code of the script decides; what of it is not known has to be given."""
    found = dict(run.training)
    if isinstance(stages := found.get("checkpoint"), tuple):
        found["checkpoint"] = ",".join(_path(stage, run.config) for stage in stages)
    still = {
        name: f"{path}: {name} is decided by {value.why}, which is not known before the script runs; give "
        f"{_OPTIONS.get(name, f'--set {name}=VALUE')}"
        for name, value in found.items()
        if isinstance(value, Unknown)
    }
    if isinstance(reader.gpus, Unknown):
        still["gpus"] = f"{reader.gpus.why}; give --gpus N"
    elif reader.gpus != 1:
        found["gpus"] = reader.gpus
    return {name: value for name, value in found.items() if not isinstance(value, Unknown)}, still


def _path(stage: str, config: Config) -> str:
    """``res4:1`` as the path of that module, by the same rule as ``checkpoint_stages``; a path stays one."""
    name, colon, chunk = stage.partition(":")
    if name not in _STAGES:
        return stage
    in_heads = name == "res5" and config.values["MODEL.ROI_HEADS.NAME"] == "Res5ROIHeads"
    in_fpn = "fpn" in config.values["MODEL.BACKBONE.NAME"]
    above = "roi_heads" if in_heads and not in_fpn else "backbone.bottom_up" if in_fpn else "backbone"
    return f"{above}.{name}{colon}{chunk}"


def parse_file(path: Path) -> ast.Module:
    """The tree of a file; of a notebook that was exported, without the lines that only IPython understands."""
    try:
        return ast.parse(without_magics(read_text(path)), str(path))
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        raise InputError(f"{path}{f':{line}' if line else ''}: this is no Python that can be read: {error}") from None
    except (RecursionError, MemoryError):
        raise InputError(f"{path} is nested too deeply to be read") from None


def _makes_config(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    called = node.func
    name = called.id if isinstance(called, ast.Name) else called.attr if isinstance(called, ast.Attribute) else ""
    if name == "get_config":  # of the model zoo; many others have a function of that name
        return isinstance(called, ast.Attribute) and ast.unparse(called.value).endswith("model_zoo")
    return name in _MAKERS
