"""The config that settings describe: every value they change, with what follows from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oomproof.sources.tf_object_detection.anchors import anchors_for_size
from oomproof.sources.tf_object_detection.config.config import Config
from oomproof.sources.tf_object_detection.fields import BATCH, FREEZE, FREEZE_PATH, memory_fields, optimizer_of
from oomproof.sources.tf_object_detection.fpn import SETTING, values_for_pyramid
from oomproof.sources.tf_object_detection.schedule import rescale_schedule
from oomproof.sources.tf_object_detection.sizes import fields_for_size

_OPTIMIZER = "train_config.optimizer"


def find_planned_values(config: Config, settings: Mapping[str, Any]) -> dict[str, Any]:
    """By path, in the order in which they are to be set."""
    found: dict[str, Any] = {}
    chosen = settings.get("optimizer", optimizer_of(config))
    changed = config
    if chosen != optimizer_of(config):
        found[f"{_OPTIMIZER}.{chosen}"] = _as_optimizer(config, chosen)
        changed = config.with_values(found)
    if SETTING in settings:
        found |= values_for_pyramid(config, settings[SETTING])
    frozen = settings.get(FREEZE, config.value(FREEZE_PATH))
    if frozen != config.value(FREEZE_PATH):
        found[FREEZE_PATH] = frozen
    for each in memory_fields(config):
        if each.name in settings and settings[each.name] != config.value(each.path):
            found[each.path] = settings[each.name]
    if "image_size" in settings:
        size = settings["image_size"]
        pyramid = SETTING in settings and values_for_pyramid(config, settings[SETTING])
        found |= {**fields_for_size(config, size), **({} if pyramid else anchors_for_size(config, size))}
    before = config.value("train_config.batch_size")
    if settings.get(BATCH, before) != before:
        found |= rescale_schedule(changed, settings[BATCH] / before)
    return found


def _as_optimizer(config: Config, chosen: str) -> dict[str, Any]:
    """Another optimizer with the schedule of the present one."""
    schedule = config.value(f"{_OPTIMIZER}.{optimizer_of(config)}.learning_rate")
    return {"learning_rate": schedule} if schedule else {}
