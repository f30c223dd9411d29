"""YOLO as Ultralytics and Darknet read it: a text file of labels for each image, and data.yaml that says where.

A label is «class x y width height», the middle and the sides of a box as parts of the image's, or «class x y x y ...»,
the vertices of a polygon. Sizes are in no label, so every image's header is read.
"""

from __future__ import annotations

import math
from pathlib import Path

from oomproof.data.annotations import problems as kinds
from oomproof.data.annotations.collect import Collector, Say
from oomproof.data.annotations.dataset import Dataset
from oomproof.data.annotations.header_sizes import header_of
from oomproof.data.annotations.image_header import SUFFIXES
from oomproof.data.annotations.regular_files import has_file, is_folder, is_regular, list_files, read_regular, reason
from oomproof.data.annotations.yolo_yaml import Split, images_of_split, read_yaml
from oomproof.errors import InputError

NAME = "YOLO"
YAML_NAMES = ("data.yaml", "dataset.yaml", "data.yml", "dataset.yml")
LARGEST_LABELS = 64 << 20


def recognises(path: Path) -> bool:
    if is_regular(path):
        return path.suffix.lower() in (".yaml", ".yml")
    if not is_folder(path):
        return False
    return _yaml_in(path) is not None or _has_labels(path)


def read(path: Path, images: Path | None, split: str, say: Say) -> Dataset:
    found = Collector(path, NAME)
    say("looking for images", 0.0)
    yaml = path if is_regular(path) else _yaml_in(path)
    if yaml is not None:
        chosen = images_of_split(read_yaml(yaml), split or "train")
        if images is not None:
            chosen = Split(chosen.name, tuple(list_files(images, SUFFIXES)), chosen.keypoints)
        found.notes.append(f"{chosen.name} of {yaml.name}")
    else:
        chosen = _split_of_folder(path, images, split)
    doing = f"reading the labels and sizes of {len(chosen.images):,} images"
    for done, file in enumerate(chosen.images):
        if done % 64 == 0:
            say(doing, done / len(chosen.images))
        _add(found, file, _labels_of(file), chosen.keypoints)
    return found.build()


def _split_of_folder(path: Path, images: Path | None, split: str) -> Split:
    """A folder with images/ and labels/, each with folders for splits in it, or with labels beside the images."""
    top = images or (path / "images" if is_folder(path / "images") else path)
    if split and is_folder(top / split):
        top = top / split
    elif split and is_folder(path / split):
        top = path / split
    elif split:
        raise InputError(f"{top} has no folder {split!r}; leave out --split to read all of it")
    return Split(split or "all", tuple(list_files(top, SUFFIXES)), 0)


def _labels_of(image: Path) -> Path:
    """The same path with the last folder «images» called «labels», as Ultralytics finds it; else beside the image."""
    parts = list(image.parts)
    for place in range(len(parts) - 2, -1, -1):
        if parts[place] == "images":
            parts[place] = "labels"
            break
    return Path(*parts).with_suffix(".txt")


def _add(found: Collector, image: Path, labels: Path, keypoints: int) -> None:
    name = image.name
    try:
        header = header_of(image)
    except OSError as error:
        found.problems.add(kinds.NO_FILE, f"{name}: {reason(error)}")
        return
    if header is None:
        found.problems.add(kinds.NO_FILE, f"{name}: not a JPEG, PNG, GIF, BMP or WebP")
        return
    row = found.add_image(name, *header[:2], turned=header.turned)
    assert row is not None  # only keys can come twice, and there are none
    try:
        lines = read_regular(labels, LARGEST_LABELS).splitlines()
    except FileNotFoundError:  # an image without objects needs no file
        return
    except OSError as error:
        found.problems.add(kinds.UNREADABLE, f"{labels.name}: {reason(error)}")
        return
    wide, high = (header.height, header.width) if header.turned else header[:2]
    for number, line in enumerate(lines, 1):
        fields = line.split()
        if not fields:
            continue
        box = _box(fields, keypoints)
        usable = box is not None and found.add_object(
            row, box[0] * wide, box[1] * high, box[2] * wide, box[3] * high, vertices=box[4], mask_bytes=0, crowd=False
        )
        if not usable:
            found.problems.add(kinds.NO_BOX, f"{labels.name}, line {number}")


def _box(fields: list[bytes], keypoints: int) -> tuple[float, float, float, float, int] | None:
    """Left, top, width, height as parts of the image, and the vertices of a polygon; none if it is not a label.

    >>> _box(b"0 0.5 0.5 0.2 0.4".split(), 0)
    (0.4, 0.3, 0.2, 0.4, 0)
    """
    try:
        numbers = [float(field) for field in fields[1:]]
    except ValueError:
        return None
    if not all(map(math.isfinite, numbers)):
        return None
    if len(numbers) == 4 + keypoints:
        x, y, width, height = numbers[:4]
        return x - width / 2, y - height / 2, width, height, 0
    if keypoints or len(numbers) < 6 or len(numbers) % 2:
        return None
    left, top = min(numbers[::2]), min(numbers[1::2])
    return left, top, max(numbers[::2]) - left, max(numbers[1::2]) - top, len(numbers) // 2


def _yaml_in(path: Path) -> Path | None:
    return next((path / name for name in YAML_NAMES if is_regular(path / name)), None)


def _has_labels(path: Path) -> bool:
    if is_folder(path / "labels") and is_folder(path / "images"):
        return True  # however few labels: an image without objects has no file
    if not has_file(path, (".txt",)):
        return False
    # Labels beside images; a folder of images with a readme.txt is not one.
    texts = {file.stem for file in list_files(path, (".txt",), deep=False)}
    return any(file.stem in texts for file in list_files(path, SUFFIXES, deep=False))
