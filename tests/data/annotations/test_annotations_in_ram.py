"""What annotations take as Python objects: said without loading them, held against what json makes of the file."""

from __future__ import annotations

import json
import pickle
import random
import sys
from pathlib import Path
from typing import Any

import pytest

from oomproof.data.annotations.in_ram import find_host_data
from oomproof.data.annotations.read import read_dataset


def coco_file(path: Path, images: int, objects: int, vertices: int) -> Path:
    draw = random.Random(0)

    def numbers(count: int) -> list[float]:
        return [round(1 + draw.random() * 99, 2) for _ in range(count)]

    pictures = [
        {
            "license": 1,
            "file_name": f"{number:012d}.jpg",
            "coco_url": f"http://images.cocodataset.org/{number:012d}.jpg",
        }
        | {"height": 480, "width": 640, "date_captured": f"2013-11-14 11:{number:06d}", "id": 1000 + number}
        | {"flickr_url": f"http://farm9.staticflickr.com/8186/{number:012d}_z.jpg"}
        for number in range(images)
    ]
    marked = [
        {"segmentation": [numbers(2 * vertices)] if vertices else [], "area": draw.random(), "iscrowd": 0}
        | {"image_id": 1000 + number % images, "bbox": numbers(4), "category_id": 3, "id": 10_000 + number}
        for number in range(images * objects)
    ]
    path.write_text(json.dumps({"images": pictures, "annotations": marked, "categories": [{"id": 3, "name": "a"}]}))
    return path


def size_of(value: Any, seen: set[int]) -> int:
    """Bytes of an object and all that it refers to, in steps of 16 as CPython hands them out."""
    if id(value) in seen or (type(value) is int and -6 < value < 257):
        return 0
    seen.add(id(value))
    inner = [*value.keys(), *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else []
    return -(-sys.getsizeof(value) // 16) * 16 + sum(size_of(each, seen) for each in inner)


@pytest.mark.parametrize(("objects", "vertices"), [(1, 0), (3, 0), (7, 12), (2, 60)])
def test_lists_take_what_is_said(tmp_path: Path, objects: int, vertices: int) -> None:
    path = coco_file(tmp_path / "annotations.json", 200, objects, vertices)
    document, said = json.loads(path.read_text()), find_host_data(read_dataset(path))
    by_number = {each["id"]: each for each in document["annotations"]}
    of_image: dict[int, list[Any]] = {each["id"]: [] for each in document["images"]}
    for each in document["annotations"]:
        of_image[each["image_id"]].append(each)
    measured = size_of([document, by_number, of_image], set())
    assert said.listed == pytest.approx(measured, rel=0.1)
    assert said.numbers + said.containers < said.listed
    entries = [
        {"file_name": "000000000000.jpg", "height": 480, "width": 640, "image_id": number, "annotations": [
            {name: each[name] for name in ("iscrowd", "bbox", "category_id", "segmentation")} for each in marked
        ]}
        for number, marked in of_image.items()
    ]  # fmt: skip
    assert said.packed == pytest.approx(sum(len(pickle.dumps(each, -1)) for each in entries), rel=0.15)
    assert said.decoded == 200 * 480 * 640 * 3
    assert said.readings == 200 * objects
