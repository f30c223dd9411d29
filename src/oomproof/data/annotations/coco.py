"""COCO's JSON: «images» with id, file_name, width and height; «annotations» with image_id, bbox and segmentation.

LVIS, Objects365 and what most tools export have the same form. The two lists may come in any order.
"""

from __future__ import annotations

from array import array
from pathlib import Path
from typing import Any

import numpy as np

from oomproof.data.annotations import problems as kinds
from oomproof.data.annotations.coco_stream import CountedLists, NotAnnotations, NotStrictJson, entries
from oomproof.data.annotations.collect import Collector, Say
from oomproof.data.annotations.dataset import Dataset
from oomproof.data.annotations.header_sizes import take_sizes_from_files
from oomproof.data.annotations.regular_files import is_folder, is_regular, open_regular
from oomproof.errors import InputError

NAME = "COCO"
BOM = b"\xef\xbb\xbf"
EXPORTED = "_annotations.coco.json"
"""as Roboflow calls it, beside the images"""
LONGEST_NAME = 4096


def recognises(path: Path) -> bool:
    if is_folder(path):
        return is_regular(path / EXPORTED)
    if not is_regular(path):
        return False
    with open_regular(path) as file:
        start = file.read(4096)
    # A TFRecord may begin with either as well, its length, but has zeros behind it.
    return start.removeprefix(BOM).lstrip()[:1] in (b"{", b"[") and b"\0" not in start


def read(path: Path, images: Path | None, split: str, say: Say) -> Dataset:
    """``images``: the folder of the images, to compare their sizes with those in the annotations."""
    if split:
        raise InputError("a COCO file is one split by itself: leave out --split and name the file of that split")
    if is_folder(path):
        path, images = path / EXPORTED, images or path
        compare = False
    else:
        compare = images is not None
    try:
        found = _read_file(path, False, say)
    except NotStrictJson:
        found = _read_file(path, True, say)
    if images is not None:
        take_sizes_from_files(found, images, compare, say)
    return found.build()


def _read_file(path: Path, pythons: bool, say: Say) -> Collector:
    found, ids = Collector(path, NAME), array("q")
    with open_regular(path, 0) as file:
        size = max(1, path.stat().st_size)
        doing = f"reading {path.name} ({size / 1e6:,.0f} MB)"
        if file.read(len(BOM)) != BOM:
            file.seek(0)
        stream = CountedLists(file, lambda done: say(doing, 0.9 * done / size), pythons)
        try:
            for section, entry in entries(stream):
                if section == "images":
                    _add_image(found, entry)
                else:
                    _add_object(found, entry, ids)
        except NotStrictJson:
            raise
        except NotAnnotations as error:
            if not found.names:
                raise InputError(f"{path} cannot be read as COCO annotations: {error}") from None
            found.problems.add(kinds.DAMAGED, f"near byte {stream.done:,}: {error}")
    _count_duplicates(found, ids)
    return found


def _add_image(found: Collector, entry: dict[str, Any]) -> None:
    key, name = entry.get("id"), entry.get("file_name")
    if not isinstance(name, str):  # LVIS has the address alone
        address = entry.get("coco_url")
        name = address.rsplit("/", 1)[-1] if isinstance(address, str) else f"image {key}"
    if not isinstance(key, int | float | str) or len(name) > LONGEST_NAME:
        found.problems.add(kinds.BROKEN_IMAGE, name if key is not None else f"{name} has no id")
        return
    found.add_image(name, _side(entry.get("width")), _side(entry.get("height")), key)


def _add_object(found: Collector, entry: dict[str, Any], ids: array[int]) -> None:
    number, image = entry.get("id"), entry.get("image_id")
    box: Any = entry.get("bbox")  # whatever it is: not four numbers is an error too
    if isinstance(number, int) and -(2**63) <= number < 2**63:
        ids.append(number)
    if not isinstance(image, int | float | str):
        found.problems.add(kinds.UNKNOWN_IMAGE, f"annotation {number} has no image_id")
        return
    numbers, counts = entry.get("segmentation"), entry.get("mask_counts")
    try:
        x, y, width, height = box
        whole = found.add_object(
            found.row(image),
            x,
            y,
            width,
            height,
            vertices=numbers // 2 if type(numbers) is int else 0,
            # Run lengths as a list are held as int32 by pycocotools.
            mask_bytes=entry.get("mask_bytes", 0) or (4 * counts if type(counts) is int else 0),
            crowd=entry.get("iscrowd") == 1,
        )
    except (TypeError, ValueError):
        whole = False
    if not whole:
        found.problems.add(kinds.NO_BOX, f"annotation {number} of image {image}")


def _side(value: Any) -> int:
    """Pixels; 0 where there is no number that could be one."""
    usable = isinstance(value, int | float) and 0 < value < 2**31
    return int(value) if usable else 0


def _count_duplicates(found: Collector, ids: array[int]) -> None:
    """They are trained on all the same, but tools that look annotations up by id lose some, and Detectron2 refuses."""
    if not ids:
        return
    ordered = np.sort(np.frombuffer(ids, np.int64))
    again = ordered[1:][ordered[1:] == ordered[:-1]]
    for place, number in zip(range(kinds.EXAMPLES), np.unique(again[:10_000]), strict=False):
        found.problems.add(kinds.DUPLICATE_OBJECT, f"annotation {number}", 0 if place else len(again))
