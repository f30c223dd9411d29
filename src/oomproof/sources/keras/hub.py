"""KerasHub's detectors and segmenters by the names of their presets, built from configs: nothing is downloaded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from oomproof.errors import InputError, did_you_mean
from oomproof.memory.about import About
from oomproof.memory.batch_spec import MOST_OBJECTS, OBJECTS_HELP, note_on_objects
from oomproof.memory.timeline import Timeline
from oomproof.sources.job import ASSUMED, SUFFIX, Knob, Setting, Settings, TraceRequest
from oomproof.sources.keras.compiled import MaybeCompiled
from oomproof.sources.keras.installed import keras_hub, keras_on
from oomproof.sources.keras.job import KerasJob
from oomproof.sources.keras.training import batch_setting, size_setting, training_settings

_RESNET50 = {
    "input_conv_filters": [64],
    "input_conv_kernel_sizes": [7],
    "stackwise_num_filters": [64, 128, 256, 512],
    "stackwise_num_blocks": [3, 4, 6, 3],
    "stackwise_num_strides": [1, 2, 2, 2],
    "block_type": "bottleneck_block",
    "use_pre_activation": False,
}
_LEVELS = {"min_level": 3, "max_level": 7}
_COCO, _VOC = 91, 21


@dataclass(frozen=True)
class Preset:
    make: Callable[[Any, Settings], Any]
    """from keras_hub and settings to a model, compiled"""
    task: str
    side: int
    """pixels of its images, as published"""
    classes: int
    parameters: int
    """as KerasHub's metadata of the preset have them: of the whole detector, or of what lies below the head"""


def _retinanet(hub: Any, settings: Settings, *, use_p5: bool) -> Any:
    backbone = hub.models.RetinaNetBackbone(image_encoder=_resnet50(hub, settings), use_p5=use_p5, **_LEVELS)
    anchors = hub.layers.AnchorGenerator("yxyx", num_scales=3, aspect_ratios=[0.5, 1.0, 2.0], anchor_size=4, **_LEVELS)
    # KerasHub's anchors ask for the size of the images; its preprocessor is who knows it.
    converter = hub.layers.RetinaNetImageConverter(image_size=settings["image_size"], bounding_box_format="yxyx")
    model = hub.models.RetinaNetObjectDetector(
        backbone=backbone,
        num_classes=settings["classes"],
        anchor_generator=anchors,
        preprocessor=hub.models.RetinaNetObjectDetectorPreprocessor(image_converter=converter),
    )
    model.compile(optimizer="adam", jit_compile=False)
    return model


def _deeplab(hub: Any, settings: Settings) -> Any:
    backbone = hub.models.DeepLabV3Backbone(
        image_encoder=_resnet50(hub, settings),
        low_level_feature_key="P2",
        spatial_pyramid_pooling_key="P5",
        dilation_rates=[6, 12, 18],
        upsampling_size=8,
        projection_filters=48,
    )
    model = hub.models.DeepLabV3ImageSegmenter(backbone=backbone, num_classes=settings["classes"])
    loss = keras_on().losses.SparseCategoricalCrossentropy(from_logits=True)
    # KerasHub's own metric wants masks in one-hot form, 21 numbers for each pixel.
    model.compile(optimizer="adam", loss=loss, metrics=["sparse_categorical_accuracy"], jit_compile=False)
    return model


def _resnet50(hub: Any, settings: Settings) -> Any:
    return hub.models.ResNetBackbone(image_shape=(*settings["image_size"], 3), **_RESNET50)


PRESETS = {
    "retinanet_resnet50_fpn_coco": Preset(
        lambda hub, settings: _retinanet(hub, settings, use_p5=False), "detection", 800, _COCO, 34_121_239
    ),
    "retinanet_resnet50_fpn_v2_coco": Preset(
        lambda hub, settings: _retinanet(hub, settings, use_p5=True), "detection", 800, _COCO, 31_558_592
    ),
    "deeplab_v3_plus_resnet50_pascalvoc": Preset(_deeplab, "segmentation", 512, _VOC, 39_190_656),
}


@dataclass(frozen=True)
class HubJob(MaybeCompiled):
    """``keras_hub:NAME``"""

    model: str

    @property
    def name(self) -> str:
        return f"keras_hub:{self.model}"

    @property
    def _preset(self) -> Preset:
        return PRESETS[self.model]

    @cached_property
    def settings(self) -> tuple[Setting, ...]:
        side = self._preset.side
        own = [
            batch_setting(4),
            size_setting((side, side)),
            Setting("classes", self._preset.classes, "number of classes"),
        ]
        if self._preset.task == "detection":
            own.append(Setting("boxes", MOST_OBJECTS, f"{OBJECTS_HELP}; images with fewer are padded", basis=ASSUMED))
        # The models are classes of their own: precision is that of the policy they are built under, widths are theirs.
        left = [setting for setting in training_settings({}) if setting.name != "width"]
        return (*own, *left)

    def trace(self, request: TraceRequest) -> Timeline:
        request.progress("building the model")
        settings = request.settings
        step = self._job(settings).trace(request.with_settings(settings.without("precision", "image_size")))
        notes = (*note_on_objects(settings.get("boxes", 0)), *step.about.notes)
        return replace(step, about=replace(step.about, settings=settings, notes=notes))

    def knobs(self, settings: Settings, about: About) -> tuple[Knob, ...]:
        from oomproof.sources.keras.knobs import training_knobs

        return training_knobs(settings, about)

    @property
    def place(self) -> Path:
        return Path(f"{self.model}{SUFFIX}")

    def own_names(self, settings: Settings) -> frozenset[str]:
        return frozenset(("image_size", "classes", "boxes", "precision"))

    def training_code(self, settings: Settings, path: Path, changes: Sequence[str]) -> Sequence[str]:
        from oomproof.sources.keras.training_code import write_training_code

        policy = settings["precision"]
        code = [
            *([] if policy == "own" else ["import keras", f"keras.config.set_dtype_policy({policy!r})"]),
            f"model = ...  # {self.model} for images of {settings['image_size']}, compiled as you do it today",
        ]
        return write_training_code(settings, path, code, changes)

    def _job(self, settings: Settings) -> KerasJob:
        keras, hub = keras_on(settings["backend"]), keras_hub()
        before = keras.config.dtype_policy()
        try:
            if settings["precision"] != "own":
                keras.config.set_dtype_policy(settings["precision"])
            model = self._preset.make(hub, settings)
        finally:
            keras.config.set_dtype_policy(before)
        loss = "KerasHub's own loss" if self._preset.task == "detection" else "sparse categorical cross-entropy"
        assumed = (f"compiled with Adam and {loss}; FILE.py:FUNCTION takes your own compile()",)
        return KerasJob(model, _data(self._preset, settings), settings["batch"], self.name, assumed=assumed)


def open_hub(name: str) -> HubJob:
    keras_hub()
    if name not in PRESETS:
        raise InputError(
            f"keras_hub:{name} is not known here{did_you_mean(name, PRESETS, '.')} Known are {', '.join(PRESETS)}; "
            "write a FILE.py:FUNCTION for any other model (docs/keras.md)"
        )
    return HubJob(name)


def _data(preset: Preset, settings: Settings) -> tuple[Any, Any]:
    tensor, sides = keras_on().KerasTensor, settings["image_size"]
    images = tensor((None, *sides, 3), dtype="float32")
    if preset.task == "segmentation":
        return images, tensor((None, *sides), dtype="int32")
    boxes = {
        "boxes": tensor((None, settings["boxes"], 4), dtype="float32"),
        "labels": tensor((None, settings["boxes"]), dtype="int32"),
    }
    return images, boxes
