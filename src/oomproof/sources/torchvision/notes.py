"""What a reader of a forecast should know about a torchvision job: settings that do nothing, inputs of other sizes."""

from __future__ import annotations

from collections.abc import Iterator

from oomproof.memory.batch_spec import note_on_objects
from oomproof.sources.job import Job, Settings
from oomproof.sources.torchvision import families
from oomproof.sources.torchvision.job import open_torchvision


def notes(job: Job, model: str, settings: Settings) -> list[str]:
    """``job`` is the one that was asked for; ``model`` is what its settings chose, which may be another."""
    return [*_idle(job, model, settings), *_input(model, settings), *note_on_objects(settings.get("boxes", 0))]


def _idle(job: Job, model: str, settings: Settings) -> Iterator[str]:
    has = {setting.name for setting in open_torchvision(model).settings}
    for setting in job.settings:
        value = settings.get(setting.name, setting.default)
        if setting.name not in has and value != setting.default:
            yield f"{setting.name}={value} does nothing here: {model} has no such setting"


def _input(model: str, settings: Settings) -> Iterator[str]:
    _, usual = families.default_size(model, "detection")
    if not families.has_fixed_input(model) or settings["image_size"] == usual:
        return
    size, published = ("x".join(map(str, sides)) for sides in (settings["image_size"], usual))
    yield (
        f"built for images of {size}: the layers that torchvision publishes for {published}, with larger or smaller "
        "feature maps and anchors spread over them. No accuracy is published for it"
    )
