"""The TFRecords that a config names: which files they are, and what their images take in host RAM."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from oomproof.data.annotations.dataset import Dataset
from oomproof.data.annotations.tfrecord import find_records
from oomproof.errors import InputError
from oomproof.sources.tf_object_detection.config.config import Config

_PATHS = "train_input_reader.tf_record_input_reader.input_path"
_FEW = 0.95
"""images that are decoded at one time are larger than those of this part of the data only by chance"""


@dataclass(frozen=True)
class RecordSizes:
    """Bytes of records as they are in the file, and of images and masks as they come out of the decoder."""

    record: float
    large_record: float
    """as many of the largest as there are, at the most, in a shuffle buffer"""
    decoded: float
    large_decoded: float
    largest_decoded: int
    largest: str
    """whose image that is"""
    origin: str


COCO = RecordSizes(160e3, 320e3, 480 * 640 * 3, 2 * 480 * 640 * 3, 640 * 640 * 3, "", "")
"""Where no record was read: COCO's training images take 18 GiB and are 118,287, mostly of 480 x 640. An assumption for
any other data, and twice that in the upper figure."""
COCO_OBJECTS = 7
"""in an image of COCO on the average, each with a mask of the image's size"""


def files_of(config: Config) -> tuple[Path, ...]:
    """The records that are here; relative paths mean the working folder, as they do to the API."""
    found: list[Path] = []
    for written in config.value(_PATHS):
        try:
            found += find_records([written])
        except (InputError, OSError, ValueError):
            continue
    return tuple(dict.fromkeys(found))


def measure_records(dataset: Dataset | None, masks: bool, buffer: int) -> RecordSizes:
    """``buffer``: records in the shuffle buffer; ``masks``: whether they are decoded."""
    if dataset is None or dataset.record_bytes is None:
        per_pixel = 4 * COCO_OBJECTS * masks
        pixels = 480 * 640 * per_pixel
        return RecordSizes(
            COCO.record,
            COCO.large_record,
            COCO.decoded + pixels,
            COCO.large_decoded + 2 * pixels,
            COCO.largest_decoded + 2 * pixels,
            "",
            "",
        )
    decoded = decode_bytes(dataset, masks)
    top = np.sort(dataset.record_bytes)[::-1][: max(1, buffer)]
    worst = int(decoded.argmax())
    size, objects = f"{dataset.heights[worst]}x{dataset.widths[worst]}", int(dataset.objects[worst])
    return RecordSizes(
        float(dataset.record_bytes.mean()),
        float(top.mean()),
        float(decoded.mean()),
        float(np.quantile(decoded, _FEW)),
        int(decoded.max()),
        f"{dataset.names[worst]} ({size}, {objects} object{'s' * (objects != 1)})",
        dataset.path,
    )


def decode_bytes(dataset: Dataset, masks: bool) -> np.ndarray:
    """Of each image: a byte a colour, and a float a pixel of every mask, before anything is resized."""
    pixels = dataset.heights.astype(np.int64) * dataset.widths
    held = (dataset.image_mask_bytes > 0) * dataset.objects if masks else np.zeros(len(dataset), np.int64)
    return np.asarray(3 * pixels + 4 * pixels * held)
