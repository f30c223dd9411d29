"""A condition that is not known: both ways are followed, and what differs after them is known no more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from oomproof.sources.tf_object_detection.config.config import Config
from oomproof.sources.tf_object_detection.script.config_so_far import ConfigNode, Tracked
from oomproof.sources.tf_object_detection.script.known_values import ScriptConstants

_MISSING = object()


@dataclass(frozen=True)
class Situation:
    """What is known at one place of a script."""

    configs: Mapping[Tracked, tuple[Config, Mapping[str, str], str]]
    """of each: the config, what is open, why it is lost"""
    values: Mapping[str, Any]
    dictionaries: Mapping[str, Any]
    names: Mapping[str, ConfigNode]
    files: Mapping[str, str | None]


def remember(
    found: list[Tracked], constants: ScriptConstants, names: Mapping[str, ConfigNode], files: Mapping[str, str | None]
) -> Situation:
    configs = {each: (each.config, dict(each.open), each.lost) for each in found}
    dictionaries = {name: dict(keys) for name, keys in constants.dictionaries.items()}
    return Situation(configs, dict(constants.values), dictionaries, dict(names), dict(files))


def go_back(
    to: Situation, constants: ScriptConstants, names: dict[str, ConfigNode], files: dict[str, str | None]
) -> None:
    for tracked, (config, still_open, lost) in to.configs.items():
        tracked.config, tracked.open, tracked.lost = config, dict(still_open), lost
    constants.values = dict(to.values)
    constants.dictionaries = {name: dict(keys) for name, keys in to.dictionaries.items()}
    names.clear()
    names.update(to.names)
    files.clear()
    files.update(to.files)


def join(
    one: Situation,
    constants: ScriptConstants,
    names: dict[str, ConfigNode],
    files: dict[str, str | None],
    why: str,
) -> None:
    """``one`` is the situation after one way, the present one that after the other."""
    for tracked, (config, still_open, lost) in one.configs.items():
        told = {**still_open, **tracked.open}
        for path in _differences(config, tracked.config):
            told.setdefault(path, f"{why} {path}, which is not known before the script runs")
        tracked.open, tracked.lost = told, tracked.lost or lost
    now = constants.values
    for name in {*one.values, *now}:
        if one.values.get(name, _MISSING) != now.get(name, _MISSING):
            now.pop(name, None)
            constants.dictionaries.pop(name, None)
    for name, keys in one.dictionaries.items():
        if constants.dictionaries.get(name) != keys:  # with a key that only one way gives it
            constants.dictionaries.pop(name, None)
    for name, node in one.names.items():
        other = names.setdefault(name, node)
        if other.of is not node.of and other.of.config.text != node.of.config.text:
            other.of.lost = other.of.lost or f"{why} which config {name} is, which is not known before the script runs"
    for name, file in one.files.items():
        if files.setdefault(name, file) != file:
            files[name] = None


def _differences(one: Config, other: Config) -> list[str]:
    """Paths of fields that differ, lists as a whole; of an optimizer or a model that is another one, that alone."""
    if one is other:
        return []
    left, right = one.leaves(), other.leaves()
    found = [path for path in {**left, **right} if left.get(path, _MISSING) != right.get(path, _MISSING)]
    chosen = [path for path in ("model", "train_config.optimizer") if one.which(path) != other.which(path)]
    plain = [path.partition("[")[0] for path in found if not path.startswith(tuple(f"{each}." for each in chosen))]
    return list(dict.fromkeys((*chosen, *plain)))
