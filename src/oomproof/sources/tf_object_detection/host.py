"""Host RAM of the API's input pipeline: readers, shuffle buffer, images that are being decoded, batches that wait.

As ``dataset_builder.build`` of 2.8.0.post1 makes it: every reader has a buffer of 8 MB; the shuffle buffer holds
records as they are in the file; each of two maps works on batch_size x num_parallel_batches images at a time, whose
results are padded already: images, and masks of all padded objects. An estimate: no run was measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from oomproof.sources.tf_object_detection.config.config import Config
from oomproof.sources.tf_object_detection.fields import BATCH, classes_of

READER = 8_000_000
RECORD = 160_000
"""bytes of a record: COCO's training images take 18 GiB, and are 118,287. An assumption for any other data"""
_LARGER = 2
"""how many times that records may be, and how many maps hold images at a time, in the upper figure"""
_PATHS = "train_input_reader.tf_record_input_reader.input_path"


def describe_host(config: Config, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of About that the pipeline decides."""
    parts = price(config, settings)
    expected = sum(parts.values())
    largest = sorted(parts.items(), key=lambda item: -item[1])[:3]
    told = ", ".join(f"{name} {size / 2**30:.2f}" for name, size in largest)
    note = f"the input pipeline keeps about {expected / 2**30:.2f} GiB of host RAM, an estimate: {told} GiB"
    note += f"; records of {RECORD // 1000} kB as in COCO were assumed"
    return {"pipeline": expected, "pipeline_high": _LARGER * expected, "notes": (note,)}


def price(config: Config, settings: Mapping[str, Any]) -> dict[str, int]:
    """Expected bytes by field."""
    element = bytes_of_image(config, settings)
    images = settings[BATCH]
    files = _files(config)
    readers = min(settings["num_readers"], files) if files else settings["num_readers"]
    shuffled = settings["shuffle_buffer_size"] if config.value("train_input_reader.shuffle") else 0
    return {
        "num_readers": readers * READER,
        "shuffle_buffer_size": shuffled * RECORD,
        "num_parallel_batches": images * settings["num_parallel_batches"] * element,
        "num_prefetch_batches": images * max(0, settings["num_prefetch_batches"]) * element,
    }


def bytes_of_image(config: Config, settings: Mapping[str, Any]) -> int:
    """An image as it leaves the pipeline, with its padded ground truth."""
    height, width = settings["image_size"]
    most = settings["max_number_of_boxes"]
    masks = most * height * width if settings["load_instance_masks"] else 0
    numbers: int = 3 * height * width + masks + most * (6 + 2 * classes_of(config))
    return 4 * numbers


def _files(config: Config) -> int:
    """How many record files there are; 0 where none is here."""
    found = 0
    for written in config.value(_PATHS):
        path = Path(written)
        if path.parent.is_dir():
            found += sum(1 for _ in path.parent.glob(path.name.replace("?????", "*")))
    return found
