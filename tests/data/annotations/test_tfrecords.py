"""TFRecords: records, checksums and tf.Examples, against what TensorFlow writes."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from dataset_files import Box, Picture, example, field, framed, slow_crc32c, varint, write_records
from hypothesis import given, settings
from hypothesis import strategies as st

from oomproof import InputError, read_dataset
from oomproof.data.annotations.crc32c import crc32c
from oomproof.data.annotations.example import features, floats, integers

ONE = Picture("one.png", 64, 48, (Box(0, 0, 10, 10, 5), Box(5, 5, 20, 20)))
TWO = Picture("two.png", 100, 80, (Box(1, 1, 2, 2),))


@settings(deadline=None)
@given(st.one_of(st.binary(max_size=700), st.integers(0, 20_000).map(lambda size: bytes(range(251)) * (size // 251))))
def test_checksum(data: bytes) -> None:
    assert crc32c(data) == slow_crc32c(data)


@pytest.mark.slow
def test_what_tensorflow_writes(tmp_path: Path) -> None:
    import tensorflow as tf

    path = tmp_path / "coco_train.record-00000-of-00002"
    for shard, pictures in ((path, [ONE]), (tmp_path / "coco_train.record-00001-of-00002", [TWO, TWO])):
        with tf.io.TFRecordWriter(str(shard)) as writer:
            for picture in pictures:
                writer.write(_tensorflows_example(tf, picture))
    dataset = read_dataset(path)
    assert dataset.names == ("one.png", "two.png", "two.png")
    assert dataset.objects.tolist() == [2, 1, 1]
    assert dataset.box_widths.round(3).tolist() == [10, 20, 2, 2]
    assert dataset.mask_bytes.tolist() == [5, 0, 0, 0]
    assert dataset.problems == ()
    written = tf.train.Example.FromString(example(ONE)).features.feature
    assert written["image/height"].int64_list.value == [48]
    assert written["image/object/bbox/xmax"].float_list.value[1] == pytest.approx(25 / 64)


def _tensorflows_example(tf: Any, picture: Picture) -> bytes:
    def feature(**kind: Any) -> Any:
        return tf.train.Feature(**kind)

    def sides(values: Any) -> Any:
        return feature(float_list=tf.train.FloatList(value=values))

    wide, high, boxes = picture.width, picture.height, picture.boxes
    masks = [bytes(box.vertices) for box in boxes]
    about = {
        "image/height": feature(int64_list=tf.train.Int64List(value=[high])),
        "image/width": feature(int64_list=tf.train.Int64List(value=[wide])),
        "image/filename": feature(bytes_list=tf.train.BytesList(value=[picture.name.encode()])),
        "image/object/mask": feature(bytes_list=tf.train.BytesList(value=masks)),
        "image/object/bbox/xmin": sides([box.x / wide for box in boxes]),
        "image/object/bbox/xmax": sides([(box.x + box.width) / wide for box in boxes]),
        "image/object/bbox/ymin": sides([box.y / high for box in boxes]),
        "image/object/bbox/ymax": sides([(box.y + box.height) / high for box in boxes]),
    }
    return bytes(tf.train.Example(features=tf.train.Features(feature=about)).SerializeToString())


def test_lists_that_are_not_packed() -> None:
    numbers = b"".join(varint(1 << 3) + varint(number) for number in (3, -1))
    sides = b"".join(bytes([1 << 3 | 5]) + struct.pack("<f", side) for side in (0.5, 0.25))
    data = field(
        1, field(1, field(1, b"a") + field(2, field(3, numbers))) + field(1, field(1, b"b") + field(2, field(2, sides)))
    )
    found = features(data)
    assert integers(found["a"]) == [3, -1]
    assert floats(found["b"]).tolist() == [0.5, 0.25]


def test_damage(tmp_path: Path) -> None:
    path = write_records([ONE, TWO, TWO], tmp_path / "a.tfrecord")
    whole, size = path.read_bytes(), len(framed(example(ONE)))
    changed = bytearray(whole)
    changed[40] ^= 1
    path.write_bytes(changed)
    dataset = read_dataset(path)
    assert (len(dataset), dataset.problems[0].kind) == (2, "record with a wrong checksum")
    assert dataset.problems[0].examples == ("a.tfrecord, record 0",)
    path.write_bytes(whole[: size + 30])
    dataset = read_dataset(path)
    assert (len(dataset), dataset.problems[0].kind) == (1, "truncated record")
    path.write_bytes(framed(b"hello, world") + whole)
    dataset = read_dataset(path)
    assert (len(dataset), dataset.problems[0].kind) == (3, "record that is not a tf.Example of an image")
    changed = bytearray(whole)
    changed[0] ^= 1  # the length: where the next record begins is not known
    path.write_bytes(changed)
    with pytest.raises(InputError, match=r"truncated record.*does not match its checksum"):
        read_dataset(path)


def test_a_length_that_lies(tmp_path: Path) -> None:
    length = struct.pack("<Q", 1 << 62)
    path = tmp_path / "a.record"
    path.write_bytes(length + struct.pack("<I", _masked(length)) + bytes(100))
    with pytest.raises(InputError, match="of which 100 are there"):
        read_dataset(path)


def _masked(data: bytes) -> int:
    crc = slow_crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def test_a_folder_of_shards_and_its_splits(tmp_path: Path) -> None:
    write_records([ONE], tmp_path / "train.record-00000-of-00002")
    write_records([TWO], tmp_path / "train.record-00001-of-00002")
    write_records([TWO], tmp_path / "val.record")
    assert len(read_dataset(tmp_path)) == 3
    assert len(read_dataset(tmp_path, split="train")) == 2
    assert len(read_dataset(tmp_path / "val.record")) == 1
    with pytest.raises(InputError, match="'test'"):
        read_dataset(tmp_path, split="test")


def test_compressed_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.tfrecord.gz").write_bytes(b"\x1f\x8b\x08\x00")
    with pytest.raises(InputError, match="gunzip"):
        read_dataset(tmp_path / "a.tfrecord.gz")
