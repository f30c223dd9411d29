"""Evaluation of a training of the API: a process of its own, one image at a time, masks drawn as large as the image is
stored.

``eval_util.result_dict_for_batched_example`` of 2.8.0.post1 draws the masks of all detections (floats, then a truth
value a pixel, then a byte), and resizes those of the padded ground truth (floats, then a byte). They are on the device.
What is made of one image is there until that of the next takes its place; so are the model's predictions.
tests/trace/test_tfod_evaluation_real.py holds this against the API.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from oomproof.errors import InputError
from oomproof.memory.batch_spec import BatchSpec
from oomproof.memory.timeline import KINDS, PHASES, Timeline
from oomproof.memory.validation import Validation
from oomproof.sources.tf_object_detection.batches import resize_stored, rule_of
from oomproof.sources.tf_object_detection.config.config import Config
from oomproof.sources.tf_object_detection.fields import has_mask_head
from oomproof.sources.tf_object_detection.sizes import Size

OWNER, BEFORE = "masks at full size", "results of the image before"
_NMS = "model.faster_rcnn.second_stage_post_processing.batch_non_max_suppression.max_total_detections"
_FLOAT, _BYTE = 4, 1
"""of a pixel of a mask while it is drawn, and once it is"""


@dataclass(frozen=True)
class Evaluated:
    """What a step of evaluation is given."""

    images: int
    size: Size
    """after resizing"""
    stored: Size
    """of the largest image; that of the input where nothing was read"""
    known: bool
    """whether data say how large images are stored"""
    detections: int
    ground_truth: int
    """masks of each image that are drawn at full size; 0: none"""

    @property
    def pixels(self) -> int:
        return self.images * self.stored[0] * self.stored[1]

    @property
    def floats(self) -> int:
        """Bytes a pixel of a mask that is being drawn. Images of a batch are padded to one size, which copies them; a
        single one is as large as it should be, and tf.pad hands it on."""
        return _FLOAT if self.images == 1 else 2 * _FLOAT

    @property
    def drawing(self) -> int:
        """Bytes at most while masks are drawn, with those of the image before."""
        one = self.floats + _BYTE
        most = max(self.detections * one, self.detections * _BYTE + self.ground_truth * one)
        return self.pixels * (most + (self.detections + self.ground_truth) * _BYTE)


def describe_evaluation(
    config: Config, settings: Mapping[str, Any], how: Validation, batch: BatchSpec | None
) -> Evaluated:
    if how.grad or how.keeps:
        raise InputError(
            "the API evaluates without gradients and keeps results on the host: leave out --validation-grad and -keeps"
        )
    images = how.batch or config.value("eval_config.batch_size")
    size: Size = settings["image_size"]
    stored = size
    if batch is not None:
        rule = rule_of(config, settings)
        sizes = [resize_stored(rule, each.height, each.width) for each in batch.images]
        size = max(high for high, _ in sizes), max(wide for _, wide in sizes)
        stored = max(each.height for each in batch.images), max(each.width for each in batch.images)
    masks = has_mask_head(config)
    detections = int(config.value(_NMS)) if masks and config.which("model") == "faster_rcnn" else 0
    loads = masks and config.value("eval_input_reader") and config.value("eval_input_reader[0].load_instance_masks")
    padded = int(config.value("eval_input_reader[0].max_number_of_boxes")) if loads else 0
    return Evaluated(images, size, stored, batch is not None, detections, padded)


def with_full_masks(timeline: Timeline, of: Evaluated) -> Timeline:
    """What comes after the step, and what of the image before is still there."""
    timeline = _as_validation(timeline)
    drawn, resized = of.pixels * of.detections, of.pixels * of.ground_truth
    end, last = timeline.ticks, int(timeline.born.max())
    held = timeline.died > last  # weights, and the step's inputs and results, which the loop has names for
    results = held & (timeline.died < end) & (timeline.kind != KINDS.index("input"))
    left, masks_left = int(timeline.bytes[results].sum()), (drawn + resized) * _BYTE
    blocks = (  # bytes, born, died, of masks
        (left, 0, end, False),
        (masks_left, 0, end + 8, True),
        (drawn * of.floats, end, end + 2, True),
        (drawn * _BYTE, end + 1, end + 4, True),
        (drawn * _BYTE, end + 3, end + 8, True),
        (resized * of.floats, end + 5, end + 7, True),
        (resized * _BYTE, end + 6, end + 8, True),
    )
    owners, ops = (*timeline.owners, OWNER, BEFORE), (*timeline.ops, "CropAndResize", "results")
    nbytes, born, died, masks = (np.array(column, dtype=np.int64) for column in zip(*blocks, strict=True))
    whole = len(blocks)
    added = {
        "born": born,
        "died": died,
        "bytes": nbytes,
        "kind": np.full(whole, KINDS.index("temporary")),
        "phase": np.full(whole, PHASES.index("validation")),
        "owner": len(owners) - 1 - masks,
        "op": len(ops) - 1 - masks,
        "shape": np.zeros(whole, dtype=np.int64),
    }
    lasting = {"died": np.where(held, end + 8, timeline.died)}
    joined = {name: np.concatenate([lasting.get(name, getattr(timeline, name)), each]) for name, each in added.items()}
    order = np.argsort(joined["born"], kind="stable")
    columns: dict[str, Any] = {name: column[order] for name, column in joined.items()}
    after = int(timeline.bytes[held].sum()) + of.drawing  # whatever the order of the step was
    orders = {name: max(peak + left + masks_left, after) for name, peak in timeline.about.orders.items()}
    about = replace(timeline.about, orders=orders)
    return replace(timeline, about=about, owners=owners, ops=ops, ticks=end + 8, **columns)


def notes_of_evaluation(of: Evaluated) -> list[str]:
    high, wide = of.stored
    many = "s" * (of.images > 1)
    found = [f"evaluation takes {of.images} image{many} a step of {of.size[0]}x{of.size[1]} (eval_config.batch_size)"]
    if of.detections:
        read = "as stored" if of.known else "stored as large as the input was assumed; --records has your sizes"
        found.append(
            f"masks of {of.detections} detections and of {of.ground_truth} padded objects are drawn at {high}x{wide}, "
            f"{read}: {of.drawing / 2**30:.2f} GiB with those of the image before; fewer: max_total_detections, and "
            "max_number_of_boxes of eval_input_reader"
        )
    return found


def _as_validation(timeline: Timeline) -> Timeline:
    forward, validation = PHASES.index("forward"), PHASES.index("validation")
    return replace(
        timeline,
        phase=np.where(timeline.phase == forward, validation, timeline.phase),
        mark_phase=np.where(timeline.mark_phase == forward, validation, timeline.mark_phase),
    )
