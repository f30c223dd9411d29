"""Host RAM of the API's input pipeline: readers, shuffle buffer, images that were decoded, batches that wait.

As ``dataset_builder.build`` of 2.8.0.post1 makes it: every reader has a buffer of 8 MB; the shuffle buffer holds
records as they are in the file, and is full however few there are, since files are read again and again; two maps keep
batch_size x num_parallel_batches results each, the first images and masks as large as they are stored, the second
those that were resized and padded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from oomproof.data.annotations.dataset import Dataset
from oomproof.sources.tf_object_detection.config.config import Config
from oomproof.sources.tf_object_detection.fields import BATCH, classes_of
from oomproof.sources.tf_object_detection.records import RecordSizes, files_of, measure_records

READER = 8_000_000
ITSELF = 125_000_000
"""functions and threads of a pipeline that keeps next to nothing: measured, TensorFlow 2.21 on two cores"""
WORKING, _AT_WORST = 1.35, 1.8
"""what decoding, resizing and batching take, in terms of their results: five measured pipelines of the API took 1.2 to
1.55 times as much (docs/tf_object_detection.md)"""


@dataclass(frozen=True)
class HostPrice:
    """Bytes by the field that decides them."""

    expected: Mapping[str, int]
    high: Mapping[str, int]
    sizes: RecordSizes


def describe_host(config: Config, settings: Mapping[str, Any], dataset: Dataset | None = None) -> dict[str, Any]:
    """The fields of About that the pipeline decides."""
    price = price_host(config, settings, dataset)
    expected, high = sum(price.expected.values()), sum(price.high.values())
    largest = sorted(price.expected.items(), key=lambda item: -item[1])[:3]
    told = ", ".join(f"{name} {size / 2**30:.2f}" for name, size in largest)
    note = f"the input pipeline keeps about {expected / 2**30:.2f} GiB of host RAM ({high / 2**30:.2f} at worst)"
    note += f": {told} GiB"
    sizes = price.sizes
    if sizes.origin:
        note += f"; records of {sizes.record / 1000:,.0f} kB on the average, as in {sizes.origin}"
        note += f"; the largest to decode is {sizes.largest}, {sizes.largest_decoded / 2**20:,.0f} MiB"
    else:
        note += f"; records of {sizes.record / 1000:.0f} kB as in COCO were assumed"
    return {"pipeline": expected, "pipeline_high": max(expected, high), "notes": (note,)}


def price_host(config: Config, settings: Mapping[str, Any], dataset: Dataset | None = None) -> HostPrice:
    element = bytes_of_image(config, settings)
    images = settings[BATCH]
    files = len(files_of(config)) or (dataset.files if dataset is not None else 0)
    readers = min(settings["num_readers"], files) if files else settings["num_readers"]
    shuffled = _count_shuffled(config, settings, dataset)
    sizes = measure_records(dataset, settings["load_instance_masks"], shuffled)
    parallel = images * settings["num_parallel_batches"]
    waiting = images * (1 + max(0, settings["num_prefetch_batches"]))
    held = (
        ("num_readers", readers * READER, 2 * readers * READER),
        ("shuffle_buffer_size", shuffled * sizes.record, shuffled * sizes.large_record),
        (
            "num_parallel_batches",
            WORKING * parallel * (element + sizes.decoded),
            _AT_WORST * parallel * (element + sizes.large_decoded) + sizes.largest_decoded,
        ),
        ("num_prefetch_batches", WORKING * waiting * element, _AT_WORST * waiting * element),
        ("itself", ITSELF, 2 * ITSELF),
    )
    expected = {name: int(size) for name, size, _ in held}
    return HostPrice(expected, {name: int(size) for name, _, size in held}, sizes)


def bytes_of_image(config: Config, settings: Mapping[str, Any]) -> int:
    """An image as it leaves the pipeline, with its padded ground truth."""
    height, width = settings["image_size"]
    most = settings["max_number_of_boxes"]
    masks = most * height * width if settings["load_instance_masks"] else 0
    numbers: int = 3 * height * width + masks + most * (6 + 2 * classes_of(config))
    return 4 * numbers


def _count_shuffled(config: Config, settings: Mapping[str, Any], dataset: Dataset | None) -> int:
    if not config.value("train_input_reader.shuffle"):
        return 0
    buffer: int = settings["shuffle_buffer_size"]
    epochs = config.value("train_input_reader.num_epochs")
    return min(buffer, epochs * len(dataset)) if dataset is not None and epochs else buffer
