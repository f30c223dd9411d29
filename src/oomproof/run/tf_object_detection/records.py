"""The API's input pipeline, in an order that follows from a seed, from any record on.

The API shuffles without a seed, reads files in whatever order they come, and draws augmentations from the state of the
process. Here its ``read_dataset`` is replaced while it builds its pipeline: the order of records follows from the seed
and the epoch, and what is drawn for a record from the seed and its place in the order. Decoding, augmentation, resizing
and padding are the API's. To begin in the middle, epochs that are done are left out, and the records of the present
epoch before that place are read and not decoded.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator, Sequence
from typing import Any

from oomproof.errors import InputError
from oomproof.frameworks.object_detection import part

_BUFFER = 8_000_000
"""bytes that a reader asks for at once, as the API has it"""
_AROUND = 16
"""bytes of a record beside its content: a length of 8, and two checksums of 4"""


def open_batches(tf: Any, config: Any, model: Any, *, images: int, seed: int, first: int) -> Any:
    """A tf.data.Dataset without end of (features, labels) with so many ``images``, from record number ``first`` on."""
    reader = config.train_input_reader
    sequences = part("protos.input_reader_pb2").InputType.Value("TF_SEQUENCE_EXAMPLE")
    if reader.input_type == sequences:
        raise InputError("train_input_reader.input_type: TF_SEQUENCE_EXAMPLE is not trained here; expected TF_EXAMPLE")

    def read(file_read_func: Any, input_files: Sequence[str], reader: Any, filename_shard_fn: Any = None) -> Any:
        return _Numbered(tf, read_records(tf, list(input_files), reader, seed, first), seed)

    with _in_place_of(part("builders.dataset_builder"), "read_dataset", read):
        return part("inputs").train_input(
            config.train_config, reader, config.model, model=model, params={"batch_size": images}
        )


def read_records(tf: Any, patterns: list[str], reader: Any, seed: int, first: int) -> Any:
    """(number, record) for all records from ``first`` on."""
    skipped = first * max(reader.sample_1_of_n_examples, 1)
    if reader.sample_from_datasets_weights:
        groups = [find_files(tf, [pattern]) for pattern in patterns]
        streams = [_epochs(tf, files, reader, seed=seed + place) for place, files in enumerate(groups)]
        mixed = tf.data.Dataset.sample_from_datasets(streams, list(reader.sample_from_datasets_weights), seed=seed)
        return mixed.enumerate().skip(skipped)
    files = find_files(tf, patterns)
    records = sum(count_records(tf, name) for name in files)
    if not records:
        raise InputError(f"{', '.join(patterns)}: the files are there, and hold no records")
    epoch, offset = divmod(skipped, records)
    return _epochs(tf, files, reader, seed=seed, first=epoch, offset=offset).enumerate(skipped)


def find_files(tf: Any, patterns: list[str]) -> list[str]:
    found = sorted(tf.io.gfile.glob(patterns))
    if not found:
        raise InputError(f"no file matches train_input_reader's input_path {', '.join(patterns)}")
    return found


def count_records(tf: Any, name: str) -> int:
    """By their lengths; contents are not read."""
    count = place = 0
    with tf.io.gfile.GFile(name, "rb") as file:
        size = file.size()
        while place < size:
            file.seek(place)
            start = file.read(8)
            place += struct.unpack("<Q", start)[0] + _AROUND if len(start) == 8 else size
            count += 1
    if place != size:
        raise InputError(f"{name} ends in the middle of a record, or is not a TFRecord file: write it again")
    return count


def _epochs(tf: Any, files: list[str], reader: Any, *, seed: int, first: int = 0, offset: int = 0) -> Any:
    """Records without end; of the first epoch, those after ``offset``."""

    together = max(min(reader.num_readers, len(files)), 1)

    def epoch(number: Any) -> Any:
        dataset = tf.data.Dataset.from_tensor_slices(files)
        if reader.shuffle:
            dataset = dataset.shuffle(
                reader.filenames_shuffle_buffer_size, seed=seed + number, reshuffle_each_iteration=False
            )
        dataset = dataset.interleave(
            lambda name: tf.data.TFRecordDataset(name, buffer_size=_BUFFER),
            cycle_length=together,
            num_parallel_calls=together,
            block_length=reader.read_block_length,
            deterministic=True,
        )
        if reader.shuffle:
            dataset = dataset.shuffle(
                reader.shuffle_buffer_size, seed=seed + number + 1, reshuffle_each_iteration=False
            )
        return dataset.skip(tf.where(number == first, tf.cast(offset, tf.int64), 0))

    return tf.data.Dataset.range(first, tf.int64.max).flat_map(epoch)


class _Numbered:
    """What the API does with a dataset of records, for records with numbers."""

    def __init__(self, tf: Any, dataset: Any, seed: int, maps: int = 0) -> None:
        self.tf, self.dataset, self.seed, self.maps = tf, dataset, seed, maps

    def shard(self, count: int, place: int) -> _Numbered:
        return _Numbered(self.tf, self.dataset.shard(count, place), self.seed, self.maps)

    def map(self, function: Any, num_parallel_calls: Any = None) -> _Numbered:
        from oomproof.frameworks.tf_random import drawing_from

        tf, maps = self.tf, self.maps

        def map_numbered(number: Any, element: Any) -> Any:
            start = tf.random.fold_in(tf.constant([self.seed, 2 + maps], tf.int64), number)
            with drawing_from(start):
                return number, function(element)

        as_it_is = tf.autograph.experimental.do_not_convert(map_numbered)  # converting takes longer than all the rest
        mapped = self.dataset.map(as_it_is, num_parallel_calls=num_parallel_calls, deterministic=True)
        return _Numbered(tf, mapped, self.seed, maps + 1)

    def batch(self, images: int, drop_remainder: bool = False) -> Any:
        plain = self.dataset.map(lambda number, element: element)
        return plain.batch(images, drop_remainder=True)


@contextlib.contextmanager
def _in_place_of(module: Any, name: str, other: Any) -> Iterator[None]:
    before = getattr(module, name)
    setattr(module, name, other)
    try:
        yield
    finally:
        setattr(module, name, before)
