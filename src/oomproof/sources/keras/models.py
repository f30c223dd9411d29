"""Keras models by name, without downloads: ``keras:NAME`` for keras.applications, ``keras_hub:NAME`` for KerasHub's
detectors and segmenters. Their weights are new."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from oomproof.errors import InputError, did_you_mean
from oomproof.memory.timeline import Timeline
from oomproof.sources.job import Knob, Progress, Setting, Settings
from oomproof.sources.keras.installed import keras_on
from oomproof.sources.keras.job import KerasJob
from oomproof.sources.keras.training import training_settings

_CLASSES = 1000
_ADAM = (
    "compiled with Adam and sparse categorical cross-entropy; FILE.py:FUNCTION takes your own compile() (docs/keras.md)"
)
_SIZES = {
    **dict.fromkeys(("InceptionV3", "InceptionResNetV2", "Xception"), 299),
    "NASNetLarge": 331,
    **{f"EfficientNetB{number}": side for number, side in enumerate((224, 240, 260, 300, 380, 456, 528, 600))},
    **{"EfficientNetV2B1": 240, "EfficientNetV2B2": 260, "EfficientNetV2B3": 300},
    **{"EfficientNetV2S": 384, "EfficientNetV2M": 480, "EfficientNetV2L": 480},
}
"""pixels of the images that a model was published for, where they are not 224 (the models' pages on keras.io)"""
_USUAL_SIZE = 224


@dataclass(frozen=True)
class Application:
    """``keras:NAME``: a classifier of keras.applications."""

    model: str

    @property
    def name(self) -> str:
        return f"keras:{self.model}"

    @cached_property
    def settings(self) -> tuple[Setting, ...]:
        side = _SIZES.get(self.model, _USUAL_SIZE)
        return (
            Setting("batch", 32, "images a step"),
            Setting("image_size", (side, side), "height x width of the images, in pixels"),
            Setting("classes", _CLASSES, "number of classes"),
            *training_settings({}),
        )

    def trace(self, settings: Settings, progress: Progress) -> Timeline:
        progress("building the model")
        return self._job(settings).trace(_rest(settings), progress)

    def knobs(self, settings: Settings, facts: Mapping[str, Any]) -> tuple[Knob, ...]:
        from oomproof.sources.keras.knobs import training_knobs

        return training_knobs(settings, facts)

    @property
    def place(self) -> Path:
        return Path(f"{self.model}.oomproof.json")

    def write(self, settings: Settings, target: Path | None, *, device: str = "", changes: Sequence[str] = ()) -> str:
        from oomproof.sources.keras.write import write_file

        shape = f"input_shape={(*settings['image_size'], 3)}"
        code = [
            "import keras",
            f"model = keras.applications.{self.model}(weights=None, {shape}, classes={settings['classes']})",
            "model.compile(...)  # as you do it today",
        ]
        path, own = target or self.place, ("image_size", "classes")
        return write_file(path, self.name, settings, code, own=own, device=device, changes=changes)

    def _job(self, settings: Settings) -> KerasJob:
        keras = keras_on(settings["backend"])
        make = getattr(keras.applications, self.model)
        try:
            model = make(weights=None, input_shape=(*settings["image_size"], 3), classes=settings["classes"])
        except ValueError as error:
            raise InputError(f"{self.name}: {str(error).splitlines()[0]}") from error
        model.compile("adam", "sparse_categorical_crossentropy", jit_compile=False)
        return KerasJob(model, name=self.name, assumed=(_ADAM,))


def open_application(name: str) -> Application:
    known = applications()
    if name not in known:
        meant = did_you_mean(name, known, f"; it has {', '.join(known)}")
        raise InputError(f"keras.applications has no model '{name}'{meant}")
    return Application(name)


def applications() -> tuple[str, ...]:
    """Every model of the installed keras.applications."""
    found = vars(keras_on().applications).items()
    return tuple(sorted(name for name, value in found if callable(value) and not name.startswith("_")))


def _rest(settings: Settings) -> dict[str, Any]:
    """What the model is not built with."""
    return {name: value for name, value in settings.items() if name not in ("classes",)}
