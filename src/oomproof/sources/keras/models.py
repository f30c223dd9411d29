"""Keras models by name, without downloads: ``keras:NAME`` for keras.applications, ``keras_hub:NAME`` for KerasHub's
detectors and segmenters. Their weights are new."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from oomproof.errors import CannotDo, InputError, did_you_mean
from oomproof.memory.about import About
from oomproof.memory.timeline import Timeline
from oomproof.sources.job import SUFFIX, Knob, Setting, Settings, TraceRequest
from oomproof.sources.keras.compiled import MaybeCompiled
from oomproof.sources.keras.installed import keras_on
from oomproof.sources.keras.job import KerasJob
from oomproof.sources.keras.training import batch_setting, size_setting, training_settings

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
class Application(MaybeCompiled):
    """``keras:NAME``: a classifier of keras.applications."""

    model: str

    @property
    def name(self) -> str:
        return f"keras:{self.model}"

    @cached_property
    def settings(self) -> tuple[Setting, ...]:
        side = _SIZES.get(self.model, _USUAL_SIZE)
        return (
            batch_setting(32),
            size_setting((side, side)),
            Setting("classes", _CLASSES, "number of classes"),
            *training_settings({}),
        )

    def trace(self, request: TraceRequest) -> Timeline:
        request.progress("building the model")
        return self._job(request.settings).trace(request.with_settings(request.settings.without("classes")))

    def knobs(self, settings: Settings, about: About) -> tuple[Knob, ...]:
        from oomproof.sources.keras.knobs import training_knobs

        return training_knobs(settings, about)

    @property
    def place(self) -> Path:
        return Path(f"{self.model}{SUFFIX}")

    def own_names(self, settings: Settings) -> frozenset[str]:
        return frozenset(("image_size", "classes"))

    def training_code(self, settings: Settings, path: Path, changes: Sequence[str]) -> Sequence[str]:
        from oomproof.sources.keras.training_code import write_training_code

        shape = f"input_shape={(*settings['image_size'], 3)}"
        code = [
            "import keras",
            f"model = keras.applications.{self.model}(weights=None, {shape}, classes={settings['classes']})",
            "model.compile(...)  # as you do it today",
        ]
        return write_training_code(settings, path, code, changes)

    def _job(self, settings: Settings) -> KerasJob:
        keras = keras_on(settings["backend"])
        make = getattr(keras.applications, self.model)
        try:
            model = make(weights=None, input_shape=(*settings["image_size"], 3), classes=settings["classes"])
        except ValueError as error:
            raise CannotDo(f"{self.name}: {str(error).splitlines()[0]}") from error
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
