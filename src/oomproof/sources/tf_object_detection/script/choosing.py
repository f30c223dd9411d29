"""Which of the configs that a script reads or makes it is about."""

from __future__ import annotations

from typing import Any

from oomproof.sources.tf_object_detection.config.config import Config
from oomproof.sources.tf_object_detection.fields import memory_fields
from oomproof.sources.tf_object_detection.script.config_so_far import Tracked


def choose_config(found: list[Tracked], script: str) -> Tracked | None:
    """Of those that it writes, else that it changes, else reads, the last one; lost where others of them differ."""
    written = [
        each for each in found if each.is_written and (each.is_changed or not any(it.is_changed for it in found))
    ]
    several = written or [each for each in found if each.is_changed] or found[:1]
    if not several:
        return None
    last = several[-1]
    if last.trained_at and not last.is_written:
        why = "the script builds the model and trains it by a loop of its own, which is not forecast; its step's images"
        last.open["train_config.batch_size"] = f"{last.trained_at}: {why} are not those of train_config.batch_size"
        last.notes.append(last.open["train_config.batch_size"])
    if last.written_as is not None and _decisive(last.written_as) != _decisive(last.config) and not last.lost:
        last.lost = f"{script} changes the config after it has written it; which is meant is not known here"
    kinds = {repr(_decisive(each.config)) for each in several if not each.lost}
    if len(kinds) > 1 and not last.lost:
        last.lost = f"{script} makes {len(several)} configs that differ; which is meant is not known here"
    return last


def _decisive(config: Config) -> tuple[Any, ...]:
    fields = memory_fields(config)
    model = [pair for pair in config.leaves().items() if pair[0].startswith("model.")]
    return (*((each.path, config.value(each.path)) for each in fields), config.which("train_config.optimizer"), *model)
