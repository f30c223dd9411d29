"""A resolved Detectron2 config: the file, what it is based on, and overrides, with the place that set each key.

>>> config = read("COCO-InstanceSegmentation/mask_rcnn_R_50_FPN_3x.yaml", ("SOLVER.IMS_PER_BATCH", "8"))
>>> config.values["SOLVER.IMS_PER_BATCH"], config.values["MODEL.RPN.PRE_NMS_TOPK_TRAIN"]
(8, 2000)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from oomproof.errors import InputError, did_you_mean
from oomproof.files.looking import is_file, is_folder, is_there
from oomproof.sources.detectron2.config.old_keys import new_name
from oomproof.sources.detectron2.config.schema import DEFAULTS, SECTIONS, VERSION
from oomproof.sources.detectron2.config.values import check_value, decode
from oomproof.sources.detectron2.config.yaml_file import parse, read_text
from oomproof.sources.detectron2.zoo import configs as zoo

OVERRULED = "whatever the config says"
"""of a key that other code decides: no config can change it"""
COMMAND_LINE = "the command line"
_MOST_TOLD = 10
"""mistakes of a config that are told at once"""
_MOST_OWN = 5
"""keys of a project that are named"""
_MOST_FILES = 64
"""a config is read from, with all its bases, each as often as it is named"""


def _no_key(_: str) -> bool:
    return False


@dataclass(frozen=True)
class Origin:
    """What set a key: a file and its line, or a name (of the zoo, of the command line) and line 0."""

    file: str
    line: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


@dataclass(frozen=True)
class Config:
    """``values`` has every key of Detectron2; ``origins`` says where those come from that are not defaults."""

    name: str
    values: Mapping[str, Any]
    origins: Mapping[str, Origin] = field(default_factory=dict)
    path: Path | None = None
    """the user's own file, where there is one"""
    notes: tuple[str, ...] = ()
    """what a reader should know about how the config was read"""
    unknown: Mapping[str, str] = field(default_factory=dict)
    """keys of a script that only a run can tell, with the reason; ``values`` has what they were before"""
    lost: str = ""
    """why hardly any key is known: a file was merged that nobody knows"""
    text: str = ""
    """of the user's own file, as it was read"""
    guesses: tuple[str, ...] = ()
    """what the config was read as if it were not there: code that may change it"""


@dataclass(frozen=True)
class _Raw:
    """One value as a file has it, not yet checked: a base may be overwritten before anybody looks."""

    value: Any
    origin: Origin


def read(name: str | Path, overrides: Sequence[Any] = (), is_own: Callable[[str], bool] = _no_key) -> Config:
    """The config of a YAML file, or of a name of Detectron2's model zoo; ``overrides`` is KEY, VALUE, KEY, VALUE ...
    ``is_own`` says of a key that Detectron2 does not have whether a project has added it."""
    path = Path(name)
    there = is_there(path) and not is_folder(path)
    return override_config(of_text(path, read_text(path), is_own) if there else _read_published(str(name)), overrides)


def of_text(path: Path, text: str, is_own: Callable[[str], bool] = _no_key) -> Config:
    """The config that ``path`` would be if it held ``text``."""
    notes: list[str] = []
    raw = _without_own(_with_bases(path, text, (), notes, []), is_own, notes)
    return replace(_resolve_config(str(path), raw, path, notes), text=text)


def override_config(
    config: Config, overrides: Sequence[Any], where: str = COMMAND_LINE, is_own: Callable[[str], bool] = _no_key
) -> Config:
    """The config with KEY, VALUE pairs put over it, as Detectron2's ``merge_from_list`` does."""
    if len(overrides) % 2:
        raise InputError(f"{where}: settings come in pairs such as SOLVER.IMS_PER_BATCH 8; {_say_odd(overrides)}")
    values, origins = dict(config.values), dict(config.origins)
    wrong: list[InputError] = []
    for key, text in zip(overrides[::2], overrides[1::2], strict=True):
        if _is_of_project(str(key), is_own):
            continue
        try:
            values[str(key)] = check_value(str(key), decode(text), where)
            origins[str(key)] = Origin(where)
        except InputError as error:
            wrong.append(error)
    _tell_all(wrong)
    return replace(config, values=values, origins=origins, unknown=_still(config.unknown, overrides[::2]))


def _say_odd(overrides: Sequence[Any]) -> str:
    for each in overrides:
        key, _, value = re.split(r"([= ])", f"{each}=", maxsplit=1)
        if key in DEFAULTS and value:
            return f"write '{each}' as two: {key} {value.removesuffix('=').strip()}"
    return f"'{overrides[-1]}' has no value after it"


def _ask_for_script(path: Path) -> str:
    """Several keys that do not exist are seldom typing errors."""
    return f"; where a project adds such keys, give its training script: train_net.py --config-file {path}"


def _tell_all(wrong: Sequence[InputError], behind: str = "") -> None:
    """Every mistake of a config in one line: who mends one should not have to run again for the next."""
    if not wrong:
        return
    told = "; ".join(str(error) for error in wrong[:_MOST_TOLD])
    more = f"; and {len(wrong) - _MOST_TOLD} more" if len(wrong) > _MOST_TOLD else ""
    raise InputError(f"{told}{more}{behind}")


def _still(unknown: Mapping[str, str], known: Collection[Any]) -> Mapping[str, str]:
    return {key: why for key, why in unknown.items() if key not in known} if unknown else unknown


def from_defaults(name: str) -> Config:
    """What ``get_cfg()`` gives before anything is merged."""
    return Config(name, dict(DEFAULTS))


def merge_file(config: Config, name: str, folder: Path, is_own: Callable[[str], bool] = _no_key) -> Config:
    """``cfg.merge_from_file(name)``: a file's own settings over those there are, defaults not among them."""
    path = folder / name
    other = read(path if is_file(path) else name, (), is_own)
    values = {**config.values, **{key: other.values[key] for key in other.origins}}
    notes, unknown = (*config.notes, *other.notes), _still(config.unknown, other.origins)
    return replace(config, values=values, origins={**config.origins, **other.origins}, notes=notes, unknown=unknown)


def _read_published(name: str) -> Config:
    full = zoo.full_name(name)
    facts = zoo.find_published(name)
    if facts is None:
        known = [*zoo.list_names(), *(each.rpartition("/")[2] for each in zoo.list_names())]
        raise InputError(
            f"there is no file '{name}', and Detectron2's model zoo has no config of that name"
            + did_you_mean(name, known, "; check the path")
        )
    origin = Origin(f"{full} of Detectron2's model zoo")
    exact = name.removeprefix("configs/") == full
    notes = () if exact else (f"there is no file {name}: taken as Detectron2 publishes it, {full}",)
    return Config(name, {**DEFAULTS, **facts}, dict.fromkeys(facts, origin), None, notes)


def _with_bases(path: Path, text: str, above: tuple[Path, ...], notes: list[str], files: list[Path]) -> dict[str, _Raw]:
    here = path.resolve()
    if here in above:
        chain = " -> ".join(each.name for each in (*above[above.index(here) :], here))
        raise InputError(f"{path}: _BASE_ leads back to itself ({chain}); one of these files must have another base")
    if len(files) >= _MOST_FILES:
        raise InputError(f"{path}: _BASE_ leads to more than {_MOST_FILES} files, one after the other: no config does")
    files.append(here)
    file = parse(text, str(path))
    raw: dict[str, _Raw] = {}
    for base in file.base:
        raw.update(_base(base, path, (*above, here), notes, files))
    raw.update((key, _Raw(value, Origin(str(path), file.places[key].line))) for key, value in file.leaves.items())
    return raw


def _base(base: str, path: Path, above: tuple[Path, ...], notes: list[str], files: list[Path]) -> dict[str, _Raw]:
    wanted = Path(base).expanduser()
    there = wanted if wanted.is_absolute() else path.parent / wanted
    if "://" not in base and is_file(there):
        return _with_bases(there, read_text(there), above, notes, files)
    facts, full = zoo.find_published(base), zoo.full_name(base)
    if facts is None:
        raise InputError(
            f"{path}: _BASE_ names {base}, which is not there ({there}), nor a config that Detectron2 publishes; "
            "correct the path"
        )
    notes.append(f"_BASE_ {base} is not there: taken as Detectron2 publishes it, {full}")
    return {key: _Raw(value, Origin(f"{full} of Detectron2's model zoo")) for key, value in facts.items()}


def _is_of_project(key: str, is_own: Callable[[str], bool]) -> bool:
    return key not in DEFAULTS and key not in SECTIONS and is_own(key)


def _without_own(raw: dict[str, _Raw], is_own: Callable[[str], bool], notes: list[str]) -> dict[str, _Raw]:
    """Without the keys of a project's own code, which are told in one note."""
    own = [key for key in raw if _is_of_project(key, is_own)]
    if own:
        more = f" and {len(own) - _MOST_OWN} more" if len(own) > _MOST_OWN else ""
        told = ", ".join(own[:_MOST_OWN])
        notes.append(
            f"{raw[own[0]].origin}: {told}{more}: for code that Detectron2 does not have, which is not forecast"
        )
    return {key: value for key, value in raw.items() if key not in own}


def _resolve_config(name: str, raw: Mapping[str, _Raw], path: Path, notes: list[str]) -> Config:
    version = raw["VERSION"].value if "VERSION" in raw else VERSION
    if "VERSION" not in raw and ("MODEL.WEIGHT" in raw or "TEST.AUG_ON" in raw):
        version = 1  # as Detectron2 guesses
    if not isinstance(version, int) or version > VERSION:
        raise InputError(
            f"{raw['VERSION'].origin}: VERSION must be {VERSION} or older, the newest there is; got {version}"
        )
    if version < VERSION:
        notes.append(f"{path} is an old config (version {version}): its keys are read under their new names")
    values, origins, wrong = dict(DEFAULTS), {}, list[InputError]()
    model = raw["MODEL.META_ARCHITECTURE"].value if "MODEL.META_ARCHITECTURE" in raw else ""
    for old, entry in raw.items():
        key = new_name(old, model) if version < VERSION else old
        if not key:
            continue
        try:
            values[key] = check_value(key, decode(entry.value), str(entry.origin))
            origins[key] = entry.origin
        except InputError as error:
            wrong.append(error)
    of_nobody = [old for old in raw if old not in DEFAULTS and old not in SECTIONS] if version == VERSION else []
    _tell_all(wrong, _ask_for_script(path) if len(of_nobody) > 1 else "")
    values["VERSION"] = VERSION
    return Config(name, values, origins, path, tuple(notes))
