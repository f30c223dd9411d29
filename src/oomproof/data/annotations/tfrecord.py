"""TFRecords of tf.Example with the keys of TensorFlow's Object Detection API, read without TensorFlow.

Of one image: image/filename, image/height and image/width (else the header of image/encoded is read), the four lists
image/object/bbox/xmin ... as parts of the image, image/object/is_crowd, and image/object/mask, a PNG for each object.
"""

from __future__ import annotations

import glob
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from oomproof.data.annotations import example
from oomproof.data.annotations import problems as kinds
from oomproof.data.annotations.collect import Collector, Say
from oomproof.data.annotations.dataset import Dataset
from oomproof.data.annotations.image_header import Header, read_header
from oomproof.data.annotations.records import DamagedRecord, records
from oomproof.data.annotations.regular_files import is_folder, is_regular, list_files, open_regular, reason
from oomproof.errors import InputError
from oomproof.files.looking import is_there

NAME = "TFRecord"
FILE = re.compile(r"\.(tfrecords?|record)(-\d+-of-\d+)?(\.gz)?$", re.IGNORECASE)
PATTERN = re.compile(r"(?=.*[*?\[]).*\.(tfrecords?|record)", re.IGNORECASE)
SHARD = re.compile(r"-\d+-of-\d+(\.gz)?$")
ENDINGS = (".tfrecord", ".tfrecords", ".record")
GZIP = b"\x1f\x8b"
SIDES = ("xmin", "ymin", "xmax", "ymax")
LONGEST_NAME = 4096


def recognises(path: Path) -> bool:
    if is_folder(path):
        return bool(_files_in(path))
    return is_regular(path) and FILE.search(path.name) is not None


def is_pattern(text: str) -> bool:
    """Whether it stands for TFRecord files, and is not the name of one."""
    return PATTERN.search(text) is not None and "\0" not in text and not is_there(text)


def read(path: Path, images: Path | None, split: str, say: Say) -> Dataset:
    if images is not None:
        raise InputError(f"the images of TFRecords are in them: leave out --images for {path}")
    return read_files(path, _choose_files(path, split), say)


def find_records(patterns: Sequence[str]) -> list[Path]:
    """The files that names and patterns mean, as the API's ``input_path`` takes them: «train.record-?????-of-00010».

    A pattern that fits nothing is an InputError."""
    found: dict[Path, None] = {}
    for pattern in patterns:
        # glob, since Path.glob refuses a pattern that begins at the root
        matched = [pattern] if is_there(pattern) else sorted(glob.glob(pattern))  # noqa: PTH207
        files = [Path(each) for each in matched]
        files = [each for file in files for each in (_files_in(file) if is_folder(file) else [file])]
        if not files:
            raise InputError(f"no TFRecord file is called {pattern}; expected a file, a folder, or a pattern in quotes")
        found |= dict.fromkeys(files)
    return list(found)


def read_files(name: Path, files: Sequence[Path], say: Say) -> Dataset:
    """All of ``files`` as one dataset, which is called ``name``."""
    found = Collector(name, NAME)
    total = max(1, sum(file.stat().st_size for file in files))
    doing = f"reading {len(files)} TFRecord file{'s' if len(files) > 1 else ''} ({total / 1e6:,.0f} MB)"
    done = 0
    for file in files:
        try:
            for at in _read_file(found, file):
                say(doing, (done + at) / total)
        except OSError as error:
            found.problems.add(kinds.UNREADABLE, f"{file.name}: {reason(error)}")
        done += file.stat().st_size
    return replace(found.build(), files=len(files))


def _files_in(path: Path) -> list[Path]:
    return [file for file in list_files(path, ("",), deep=False) if FILE.search(file.name)]


def _choose_files(path: Path, split: str) -> list[Path]:
    """One file with the other shards of its set, or all of a folder; of these, with a split, those named so."""
    if is_folder(path):
        files = [file for file in _files_in(path) if split in file.name]
    elif split:
        raise InputError("a TFRecord file is one split by itself: leave out --split and name the file of that split")
    elif SHARD.search(path.name):
        stem = SHARD.sub("", path.name)
        files = [file for file in _files_in(path.parent) if SHARD.sub("", file.name) == stem]
    else:
        files = [path]
    if not files:
        raise InputError(f"no TFRecord of {path} has {split!r} in its name; leave out --split to read all of them")
    return files


def _read_file(found: Collector, file: Path) -> Iterator[int]:
    """Adds what is in the file; yields now and then how far it is, in bytes."""
    with open_regular(file, 1 << 20) as stream:
        if stream.read(2) == GZIP:
            raise InputError(f"{file} is compressed: unpack it first, as in `gunzip -k {file.name}`")
        stream.seek(0)
        try:
            for number, (at, data) in enumerate(records(stream)):
                if number % 64 == 0:
                    yield at
                where = f"{file.name}, record {number}"
                if data is None:
                    found.problems.add(kinds.WRONG_CHECKSUM, where)
                    continue
                try:
                    _add(found, data, where)
                except example.NotAnExample as error:
                    found.problems.add(kinds.NOT_AN_EXAMPLE, f"{where}: {error}")
        except DamagedRecord as error:
            found.problems.add(kinds.TRUNCATED, f"{file.name}, {error}")


def _add(found: Collector, data: bytes, where: str) -> None:
    features = example.features(data)
    size = _size(features)
    boxes = [example.floats(features.get(f"image/object/bbox/{side}")) for side in SIDES]
    if size is None and not any(name.startswith("image") for name in features):
        raise example.NotAnExample("it has no image/... features")
    name = next(iter(example.texts(features.get("image/filename"))), memoryview(b""))
    text = bytes(name[:LONGEST_NAME]).decode("utf-8", "replace") or where
    size = size or Header(0, 0)
    row = found.add_image(text, size.width, size.height, turned=size.turned)
    found.record_bytes.append(len(data))
    if row is None or not size.width:
        return
    count = min(map(len, boxes))
    if max(map(len, boxes)) > count:
        found.problems.add(kinds.NO_BOX, text, max(map(len, boxes)) - count)
    crowd = example.integers(features.get("image/object/is_crowd"))
    masks = example.texts(features.get("image/object/mask"))
    for place, (left, top, right, bottom) in enumerate(zip(*(side[:count].tolist() for side in boxes), strict=True)):
        usable = found.add_object(
            row,
            left * size.width,
            top * size.height,
            (right - left) * size.width,
            (bottom - top) * size.height,
            vertices=0,
            mask_bytes=len(masks[place]) if place < len(masks) else 0,
            crowd=place < len(crowd) and crowd[place] == 1,
        )
        if not usable:
            found.problems.add(kinds.NO_BOX, text)


def _size(features: dict[str, memoryview]) -> Header | None:
    height = next(iter(example.integers(features.get("image/height"))), 0)
    width = next(iter(example.integers(features.get("image/width"))), 0)
    if height > 0 and width > 0:
        return Header(min(width, 1 << 30), min(height, 1 << 30))
    encoded = next(iter(example.texts(features.get("image/encoded"))), None)
    return None if encoded is None else read_header(io.BytesIO(encoded))
