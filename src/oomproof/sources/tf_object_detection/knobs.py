"""What a training of the API may change for memory, under the API's own names.

``harm`` is about the share of mAP that a change costs; where no figure is published it is a guess, and orders only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from oomproof.memory.about import About
from oomproof.sources.image_sizes import harm_of_size, smaller_sizes
from oomproof.sources.job import Knob, Option, Settings
from oomproof.sources.tf_object_detection.config.config import Config
from oomproof.sources.tf_object_detection.config.dead_fields import tensorflow_of
from oomproof.sources.tf_object_detection.fields import BATCH, FREEZE, STATE, has_mask_head
from oomproof.sources.tf_object_detection.fpn import SETTING, pyramids_for
from oomproof.sources.tf_object_detection.schedule import rescale_schedule

_STRIDE = 32
_SMALLER_BATCH = 0.01
_PROPOSALS = ((200, 0.005), (100, 0.01), (50, 0.03))
_REGIONS = ((32, 0.01), (16, 0.03), (8, 0.06))
_BOXES = ((50, 0.002), (30, 0.01), (20, 0.02))
_MASK_SIDES = ((28, 0.005), (15, 0.02), (7, 0.06))
_DEPTHS = ((128, 0.01), (64, 0.03), (32, 0.06))
_FROZEN_NORMS = 0.03
_FROZEN_EXTRACTOR = 0.15
_OTHER_MODEL = 0.4
_AVERAGES = 0.01
_OTHER_OPTIMIZER = 0.3


def knobs_of(config: Config, settings: Settings, about: About) -> tuple[Knob, ...]:
    every = (
        _masks_knob(config, settings),
        _unpad(settings),
        _fewer("max_number_of_boxes", _BOXES, settings, "objects beyond it are dropped from crowded images"),
        _batch(config, settings, about),
        _averages(settings),
        _image_size(settings),
        _fewer("first_stage_max_proposals", _PROPOSALS, settings, "the second stage chooses from fewer regions"),
        _fewer("second_stage_batch_size", _REGIONS, settings, "box and mask heads train on fewer regions of an image"),
        _masks(settings),
        _mask_depth(settings),
        _original_images(settings),
        _freeze_norms(settings, about),
        _freeze(config, settings),
        _pyramid(config, settings),
        _optimizer(settings),
        *_host(settings),
    )
    return tuple(knob for knob in every if knob is not None)


def _masks_knob(config: Config, settings: Settings) -> Knob | None:
    name = "load_instance_masks"
    if not settings[name] or has_mask_head(config):
        return None
    return Knob(name, _both(name, True, False), "identical", "the model has no mask head, and nothing reads the masks")


def _unpad(settings: Settings) -> Knob | None:
    name = "unpad_groundtruth_tensors"
    if settings[name]:
        return None
    why = "padding is cut off before objects are matched; it has no weight in the losses"
    return Knob(name, _both(name, False, True), "equivalent", why)


def _batch(config: Config, settings: Settings, about: About) -> Knob | None:
    """The API has no accumulation: a smaller batch is another training, with the schedule that the linear rule gives.
    Every option is one whole step, never one of several micro-batches."""
    whole = settings[BATCH]
    sizes = smaller_batches(whole, settings["gpus"])
    if not sizes:
        return None
    before = config.value("train_config.batch_size")
    options = [Option(whole, {BATCH: whole})]
    norms = "; BatchNorm takes its statistics from fewer images" if about.batchnorms else ""
    for size in sizes:
        changed = rescale_schedule(config, size / before)
        words = ", ".join(f"{path.rpartition('.')[2]} {value}" for path, value in changed.items())
        note = f"by the linear rule {words}{norms}"
        options.append(Option(size, {BATCH: size}, math.log2(whole / size) * _SMALLER_BATCH, note, "different"))
    ours = " (`oomproof run` has)" if tensorflow_of(config) == 2 else ""
    why = f"fewer images a step; the API has no gradient accumulation{ours}"
    return Knob(BATCH, tuple(options), "equivalent", why, role="batch")


def smaller_batches(whole: int, gpus: int) -> list[int]:
    """Halves, and the sizes that people write, the largest first; every GPU has as many images.

    >>> smaller_batches(24, 1), smaller_batches(25, 1), smaller_batches(16, 8)
    ([16, 12, 8, 6, 4, 3, 2, 1], [24, 16, 12, 8, 6, 4, 3, 2, 1], [8])
    """
    each = whole // gpus
    places = range(each.bit_length())
    sizes = {size for place in places for size in (each >> place, 1 << place, 3 << place)}
    return [size * gpus for size in sorted(sizes, reverse=True) if 0 < size * gpus < whole]


def _averages(settings: Settings) -> Knob | None:
    name = "use_moving_average"
    if not settings[name]:
        return None
    options = [Option(True, {name: True}), Option(False, {name: False}, _AVERAGES, "weights train as before")]
    return _different(name, options, "what is evaluated and exported are the last weights, not their average")


def _image_size(settings: Settings) -> Knob | None:
    size = settings["image_size"]
    options = [Option(size, {"image_size": size})]
    for sides, factor in smaller_sizes(size, _STRIDE):
        options.append(Option(tuple(sides), {"image_size": tuple(sides)}, harm_of_size(factor)))
    return _different("image_size", options, "fine detail and small objects are lost first", role="image size")


def _masks(settings: Settings) -> Knob | None:
    if "mask_height" not in settings:
        return None
    present = settings["mask_height"], settings["mask_width"]
    options = [Option(_sides(present), {"mask_height": present[0], "mask_width": present[1]})]
    for side, harm in _MASK_SIDES:
        if side < min(present):
            options.append(Option(f"{side}x{side}", {"mask_height": side, "mask_width": side}, harm))
    return _different("mask_height", options, "masks are predicted in fewer pixels")


def _mask_depth(settings: Settings) -> Knob | None:
    name = "mask_prediction_conv_depth"
    if not settings.get(name):  # 0: the API chooses by classes
        return None
    return _fewer(name, _DEPTHS, settings, "the mask head has fewer channels")


def _original_images(settings: Settings) -> Knob | None:
    name = "retain_original_images"
    if not settings[name]:
        return None
    return Knob(name, _both(name, True, False), "identical", "training reads no original image, and summaries few")


def _freeze_norms(settings: Settings, about: About) -> Knob | None:
    name = "freeze_batchnorm"
    if settings.get(name) is not False or not about.batchnorms:
        return None
    note = "statistics of the checkpoint, which a small batch would only spoil"
    options = [Option(False, {name: False}), Option(True, {name: True}, _FROZEN_NORMS, note)]
    return _different(name, options, "batch normalisation learns nothing of the new data")


def _freeze(config: Config, settings: Settings) -> Knob | None:
    """TensorFlow 1 alone: with no gradient, what the extractor computes need not be kept."""
    if FREEZE not in settings or settings[FREEZE]:
        return None
    pattern = ("FirstStageFeatureExtractor" if config.which("model") == "faster_rcnn" else "FeatureExtractor",)
    note = "the heads alone are trained, on features of the checkpoint"
    options = [Option("none", {FREEZE: ()}), Option(pattern[0], {FREEZE: pattern}, _FROZEN_EXTRACTOR, note)]
    return _different(FREEZE, options, "the feature extractor stays as the checkpoint has it")


def _pyramid(config: Config, settings: Settings) -> Knob | None:
    pyramids = pyramids_for(config)
    if not pyramids or settings[SETTING] in pyramids:
        return None
    options = [Option(settings[SETTING], {SETTING: settings[SETTING]})]
    for place, name in enumerate(reversed(pyramids)):
        note = "anchors in pixels and a shared head come along; start from a checkpoint of this model"
        options.append(Option(name, {SETTING: name}, _OTHER_MODEL + place * 0.1, note))
    return _different(SETTING, options, "another network, with a feature pyramid for small objects")


def _optimizer(settings: Settings) -> Knob | None:
    name, present = "optimizer", settings["optimizer"]
    if STATE.get(present, 0) < 2:
        return None
    note = "one number for a weight instead of two; its learning rate must be found anew"
    options = [
        Option(present, {name: present}),
        Option("momentum_optimizer", {name: "momentum_optimizer"}, _OTHER_OPTIMIZER, note),
    ]
    return _different(name, options, "other rules of learning", role="optimizer")


def _host(settings: Settings) -> list[Knob]:
    """Host RAM alone."""
    found = []
    for name, why, promise in (
        ("shuffle_buffer_size", "records come less well mixed", "equivalent"),
        ("num_readers", "files are read in another order", "equivalent"),
        ("num_prefetch_batches", "the same batches; fewer of them wait", "identical"),
        ("num_parallel_batches", "data may come too late", "identical"),
    ):
        values = [settings[name]]
        while values[-1] > 1:
            values.append(values[-1] // 2)
        if len(values) > 1:
            found.append(Knob(name, tuple(Option(value, {name: value}) for value in values), promise, why, host=True))
    return found


def _fewer(name: str, values: Sequence[tuple[int, float]], settings: Settings, why: str) -> Knob | None:
    if name not in settings:
        return None
    present = settings[name]
    options = [Option(present, {name: present})]
    options += [Option(value, {name: value}, harm) for value, harm in values if value < present]
    return _different(name, options, why)


def _different(name: str, options: Sequence[Option], why: str, **how: Any) -> Knob | None:
    return Knob(name, tuple(options), "different", why, **how) if len(options) > 1 else None


def _both(name: str, before: bool, after: bool) -> tuple[Option, Option]:
    return Option(before, {name: before}), Option(after, {name: after})


def _sides(size: Sequence[int]) -> str:
    return "x".join(map(str, size))
