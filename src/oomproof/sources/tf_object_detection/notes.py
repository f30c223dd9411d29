"""What a reader of a forecast should know about a training of the API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oomproof.memory.batch_spec import BatchSpec
from oomproof.sources.tf_object_detection.anchors import smallest_anchor
from oomproof.sources.tf_object_detection.batches import differ, stack
from oomproof.sources.tf_object_detection.config.config import Config
from oomproof.sources.tf_object_detection.config.dead_fields import tensorflow_of
from oomproof.sources.tf_object_detection.fields import BATCH, has_mask_head
from oomproof.sources.tf_object_detection.planned_values import find_planned_values
from oomproof.sources.tf_object_detection.sizes import has_size, size_of


def notes_of(config: Config, settings: Mapping[str, Any], batch: BatchSpec | None = None) -> list[str]:
    """``batch``: that of a dataset, where one was read."""
    height, width = settings["image_size"]
    found = [_describe_assumed(settings, f"{height}x{width}")] if batch is None else _of_data(config, settings, batch)
    if settings["gpus"] > 1:
        found.append(
            f"batch_size {settings[BATCH]} is that of all {settings['gpus']} GPUs: one of them was traced, with one "
            "more set of gradients while they are exchanged"
        )
    if settings["load_instance_masks"]:
        size = settings[BATCH] // settings["gpus"] * settings["max_number_of_boxes"] * height * width * 4
        told = f"masks of ground truth are padded to {settings['max_number_of_boxes']} of the image's size: "
        found.append(f"{told}{size / 2**20:,.0f} MiB on the device" + _describe_unused_masks(config))
    if settings["use_moving_average"] and not config.is_set("train_config.optimizer.use_moving_average"):
        found.append("use_moving_average is not in the file and true by default: one more copy of every weight")
    before = size_of(config) if has_size(config) else settings["image_size"]
    anchor = smallest_anchor(config, before)
    if anchor and min(settings["image_size"]) > min(before):
        planned = config.with_values(find_planned_values(config, settings))
        if now := smallest_anchor(planned, settings["image_size"]):  # none with a pyramid, whose anchors are in pixels
            found.append(
                f"for the larger input, anchors are rescaled: the smallest keeps its {anchor:.0f} pixels ({now:.0f}), "
                "the largest still covers the image; the network must be trained with them"
            )
    found += _dead(config)
    version = tensorflow_of(config)
    found.append(
        f"the API's own model, targets, losses and optimizer were traced (TensorFlow {version or 2}); images that it "
        "writes to TensorBoard are not counted"
    )
    return found


def _dead(config: Config) -> list[str]:
    """Fields that do nothing, one line for each reason."""
    reasons: dict[str, list[str]] = {}
    for each in config.dead_fields():
        line = each.place.rpartition(":")[0].rpartition(":")[2]
        reasons.setdefault(each.reason, []).append(f"{each.path.rpartition('.')[2]} (line {line})")
    return [f"does nothing, since {reason}: {', '.join(fields)}" for reason, fields in reasons.items()]


def _describe_assumed(settings: Mapping[str, Any], size: str) -> str:
    most = settings["max_number_of_boxes"]
    if settings["boxes"]:
        objects = f"{settings['boxes']} objects in each"
    elif settings["unpad_groundtruth_tensors"]:
        objects = f"{most // 2} objects in each, and {most} (max_number_of_boxes) at worst; --set boxes=N for your data"
    else:
        objects = f"padded to {most} objects each (unpad_groundtruth_tensors is false)"
    images = settings[BATCH]
    return f"assumed: {images} image{'s' * (images > 1)} of {size}, {objects}"


def _of_data(config: Config, settings: Mapping[str, Any], batch: BatchSpec) -> list[str]:
    most = settings["max_number_of_boxes"]
    height, width = stack(batch)
    counted = f"padded to {most} each (unpad_groundtruth_tensors is false)"
    if settings["unpad_groundtruth_tensors"]:
        counted = f"{', '.join(str(each.objects) for each in batch.images[:8])}{', ...' * (len(batch.images) > 8)}"
    found = [f"read from the data: {len(batch.images)} of its images at {height}x{width}, objects {counted}"]
    if differ(batch):
        found.append(
            "images of this batch differ in size, and the API stacks only equal ones: its input fails. "
            "pad_to_max_dimension: true in keep_aspect_ratio_resizer, or batch_size: 1"
        )
    return found


def _describe_unused_masks(config: Config) -> str:
    return "" if has_mask_head(config) else ", which the model does not read: load_instance_masks: false"
