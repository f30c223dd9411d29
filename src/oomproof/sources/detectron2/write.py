"""A plan goes back into the config: the user's file line by line, or a new file; what no key can say, as code."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from oomproof.errors import InputError
from oomproof.files.looking import is_file, is_there
from oomproof.files.replacing import replace_file
from oomproof.sources.detectron2.config import keys
from oomproof.sources.detectron2.config.config import OVERRULED, Config, of_text
from oomproof.sources.detectron2.config.old_keys import old_names
from oomproof.sources.detectron2.config.schema import DEFAULTS, VERSION
from oomproof.sources.detectron2.config.yaml_edit import format_value, with_values, write_value
from oomproof.sources.detectron2.config.yaml_file import parse, read_text
from oomproof.sources.detectron2.training_code import training_code
from oomproof.sources.job import Settings

_ROUNDS = 3
"""a value that others share by an alias changes them too: they are put right in the next round"""


def choose_target(config: Config, script: Path | None) -> Path:
    """The user's own file; for a script or a name of the zoo a new file in the working directory. What was read without
    code that may change it is not written anywhere."""
    if config.guesses:
        dump = "write cfg.dump() of a run to a YAML file, and fit that"
        answer = "let it take that from the config, and fit again" if config.guesses[0].endswith(OVERRULED) else dump
        raise InputError(f"{config.guesses[0]}, so a plan cannot be written: {answer}")
    if script is not None:
        return script.with_suffix(".fitted.yaml")
    return config.path or Path(Path(config.name).stem + ".fitted.yaml")


def write(
    config: Config,
    script: Path | None,
    settings: Settings,
    target: Path,
    *,
    device: str,
    changes: Sequence[str],
    there: Mapping[str, Any],
) -> str:
    """Writes ``target`` so that it reads as exactly the planned keys; returns what to do with it. ``there``: settings
    that the script's own code has."""
    choose_target(config, script)  # refuses guesses
    planned = {**config.values, **_keys(settings)}
    left = _find_untold_keys(config, planned)
    before: bytes | None = None
    if config.path is not None and script is None:
        if read_text(config.path) != config.text:
            raise InputError(
                f"{config.path} has changed since it was read, and the plan is for what it was: fit it again"
            )
        source = of_text(config.path, config.text).values
        text = edit_text(config.path, planned, target)
        before = config.text.encode() if _is_same(target, config.path) else None
    else:
        source = config.values
        planned = {key: value for key, value in planned.items() if key not in left}
        text = _new(planned, source, _head(config.name, device, changes))
    _verify(of_text(target, text).values, planned, target)
    try:
        replace_file(target, text.encode(), expected=before)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InputError(f"{target} cannot be written: {reason}; name another file, --write FILE") from error
    changed = [f"{key} {source[key]!r} -> {planned[key]!r}" for key in planned if planned[key] != source[key]]
    code = training_code(settings, target, own=config.path is not None and target == config.path, there=there)
    first = f"wrote {target}:" if changed else f"wrote {target}, without a change"
    if before is not None and text.encode() == before:
        first = f"{target} stays as it is: the plan is what it says"
    return "\n".join([first, *(f"  {each}" for each in changed), *code])


def _is_same(one: Path, other: Path) -> bool:
    return is_there(one) and one.samefile(other)


def _find_untold_keys(config: Config, planned: Mapping[str, Any]) -> set[str]:
    """Keys that only a run of the script tells and that no plan may change: they stay what the script makes them."""
    left = {key for key in config.unknown if not keys.matters(key, config.values)}
    for key in left:
        if planned[key] != config.values[key]:
            raise InputError(f"{config.unknown[key]}, and the plan changes it; give it behind the job: {key} VALUE")
    return left


def edit_text(path: Path, planned: Mapping[str, Any], target: Path) -> str:
    """The text of ``path`` with the planned values in place, for a file at ``target``."""
    text = read_text(path)
    if target.resolve().parent != path.resolve().parent:
        text = _with_bases_from(text, path, target)
    old = _version(text, path) < VERSION
    for _ in range(_ROUNDS):
        found = of_text(target, text).values
        wrong = [key for key in DEFAULTS if planned[key] != found[key]]
        if old and (renamed := [key for key in wrong if old_names(key)]):
            raise InputError(
                f"{path} is a config of an old version, in which {', '.join(renamed)} has another name; bring it to "
                f"VERSION: {VERSION} first"
            )
        if not wrong:
            break
        text = with_values(text, {key: planned[key] for key in wrong}, str(path))
    return text


def _keys(settings: Settings) -> dict[str, Any]:
    found = {key: value for key, value in settings.items() if key in DEFAULTS}
    # The settings of every training have names of their own for these, and win.
    return {
        **found,
        "CUDNN_BENCHMARK": settings["cudnn_benchmark"],
        "SOLVER.AMP.ENABLED": settings["precision"] != "fp32",
        "DATALOADER.NUM_WORKERS": settings["workers"],
    }


def _version(text: str, path: Path) -> int:
    leaves = parse(text, str(path)).leaves
    guessed = 1 if "MODEL.WEIGHT" in leaves or "TEST.AUG_ON" in leaves else VERSION  # as Detectron2 guesses
    return int(leaves.get("VERSION", guessed))


def _with_bases_from(text: str, path: Path, target: Path) -> str:
    """``_BASE_`` is relative to its file: in another folder it needs another path. What is not there stays as it is."""
    bases = parse(text, str(path)).base
    moved = [_move_base(base, path, target) for base in bases]
    if tuple(moved) == bases:
        return text
    return write_value(text, "_BASE_", moved if len(moved) > 1 else moved[0], str(path))


def _move_base(base: str, path: Path, target: Path) -> str:
    there = path.parent / base
    if "://" in base or base.startswith(("~", "/")) or not is_file(there):
        return base
    return Path(os.path.relpath(there.resolve(), target.resolve().parent)).as_posix()


def _new(planned: Mapping[str, Any], source: Mapping[str, Any], head: Sequence[str]) -> str:
    """A config of its own: every key that is not as Detectron2 has it by default, or was not so before the plan: the
    file is merged over what a script sets."""
    text = "\n".join([*(f"# {line}" for line in head), f"VERSION: {VERSION}", ""])
    chosen = {key: value for key, value in planned.items() if value != DEFAULTS[key] or value != source[key]}
    return with_values(text, chosen)


def _head(name: str, device: str, changes: Sequence[str]) -> list[str]:
    made = f"{name}, as oomproof fitted it" + (f" to {device}" if device else "")
    return [" ".join(line.split()) for line in (made, *changes)]


def _verify(found: Mapping[str, Any], planned: Mapping[str, Any], target: Path) -> None:
    wrong = [key for key in planned if found[key] != planned[key]]
    if wrong:
        raise InputError(
            f"{target} was not written: {', '.join(wrong)} would read as {format_value(found[wrong[0]])}, not "
            f"{format_value(planned[wrong[0]])}. Set these keys by hand"
        )
