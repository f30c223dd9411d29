"""Batches in every form that data loaders give, cut along their images."""

from __future__ import annotations

from collections import OrderedDict, UserDict, namedtuple
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from oomproof.changes.torch.micro_batches import images_in, move_batch, split, take, why_not_split
from oomproof.errors import InputError

Pair = namedtuple("Pair", ["images", "labels"])


def rows(count: int, *shape: int) -> torch.Tensor:
    return torch.arange(count).view(count, *(1 for _ in shape)).expand(count, *shape).clone()


def picture(number: int) -> torch.Tensor:
    return torch.full((3, 4, 5 + number), number)


def target(number: int) -> dict[str, torch.Tensor]:
    return {"boxes": torch.full((number, 4), number), "labels": torch.full((number,), number)}


def numbers(tree: Any) -> list[int]:
    """Which images a micro-batch is made of, told by its tensors."""
    if isinstance(tree, torch.Tensor):
        return sorted({int(value) for value in tree.flatten()}) if tree.dim() else []
    parts = tree.values() if hasattr(tree, "values") else tree if isinstance(tree, (list, tuple)) else []
    return sorted({number for part in parts for number in numbers(part)})


FORMS: dict[str, Any] = {
    "tensor": lambda n: rows(n, 2),
    "pair": lambda n: (rows(n, 3, 4, 4), rows(n)),
    "collated list": lambda n: [rows(n, 3, 4, 4), rows(n)],
    "named": lambda n: Pair(rows(n, 3, 4, 4), rows(n)),
    "detection": lambda n: ([picture(k) for k in range(n)], [target(k) for k in range(n)]),
    "zipped": lambda n: (tuple(picture(k) for k in range(n)), tuple(target(k) for k in range(n))),
    "detection, targets first": lambda n: ([target(k) for k in range(n)], [picture(k) for k in range(n)]),
    "detectron2": lambda n: [{"image": picture(k), **target(k)} for k in range(n)],
    "images alone": lambda n: [picture(k) for k in range(n)],
    "dict": lambda n: {"pixel_values": rows(n, 3, 4, 4), "labels": [target(k) for k in range(n)], "task": "detect"},
    "ordered": lambda n: OrderedDict(images=rows(n, 2), scale=torch.tensor(0.5)),
    "encoding": lambda n: UserDict(pixel_values=rows(n, 2), pixel_mask=rows(n, 2)),
    "samples": lambda n: [(picture(k), torch.tensor(k)) for k in range(n)],
    "samples of boxes": lambda n: [(picture(k), target(k)) for k in range(n)],
    "dicts of fields": lambda n: ({"x": rows(n, 3, 4, 4)}, {"y": rows(n)}),
    "collated dicts of fields": lambda n: [{"x": rows(n, 3, 4, 4)}, {"y": rows(n)}],
    "sequences": lambda n: (rows(n, 7, 6), rows(n, 7, 6)),
    "two inputs and a dict": lambda n: ((rows(n, 3, 9, 9), rows(n, 3, 9, 9)), {"y": rows(n)}),
    "images and a dict of another length": lambda n: (
        [picture(k) for k in range(n)],
        {"y": [target(k) for k in range(n)]},
    ),
    "nested": lambda n: ((rows(n, 2), {"a": rows(n), "names": ["x"] * n}), rows(n)),
}


@pytest.mark.parametrize("form", FORMS)
@given(count=st.integers(3, 7), parts=st.integers(1, 9))
def test_every_image_once_and_in_order(form: str, count: int, parts: int) -> None:
    batch = FORMS[form](count)
    assert images_in(batch) == count
    micro_batches = split(batch, parts)
    assert len(micro_batches) == min(parts, count)
    sizes = [images_in(each) for each in micro_batches]
    assert sum(sizes) == count and max(sizes) - min(sizes) <= 1
    assert all(type(each) is type(batch) for each in micro_batches)
    first = 0
    for each, size in zip(micro_batches, sizes, strict=True):
        assert set(numbers(each)) - {0} == set(range(first, first + size)) - {0}
        first += size


def test_arrays_are_cut_as_tensors_are() -> None:
    parts = split((rows(5, 2), np.arange(5)[:, None], {"names": np.array(list("abcde"))}), 2)
    assert [part[1].ravel().tolist() for part in parts] == [[0, 1, 2], [3, 4]]
    assert ["".join(part[2]["names"]) for part in parts] == ["abc", "de"]
    assert images_in({"image": np.zeros((4, 8, 8))}) == 4
    with pytest.raises(InputError, match=r"an array of shape \(3,\) in a batch of 5 images has no row for each image"):
        split((rows(5, 2), np.ones(3)), 2)


@pytest.mark.parametrize(
    ("form", "field"),
    [
        (lambda n: ((rows(n, 2), rows(n, 2)), rows(n)), lambda part: part[0]),
        (lambda n: {"image": rows(n, 2), "size": [9, 7]}, lambda part: part["size"]),
        (lambda n: {"image": rows(n, 2), "extra": [rows(n), {"scale": 2.0}]}, lambda part: part["extra"]),
    ],
)
def test_what_is_a_field_of_the_batch_is_one_of_every_part(form: Any, field: Any) -> None:
    """Although two images have as many of them as there are."""
    batch = form(8)
    assert len(field(take(batch, 2, 4))) == len(field(take(batch, 0, 1))) == 2
    assert numbers(take(batch, 2, 4)) == [2, 3]


def test_why_a_batch_cannot_be_split_is_told() -> None:
    assert why_not_split((rows(8, 2), rows(8))) == ""
    assert "shape (5,) in a batch of 8 images" in why_not_split((rows(8, 2), rows(8), torch.ones(5)))
    assert "images cannot be counted" in why_not_split(object())


def test_whole_things_are_passed_on() -> None:
    batch = {"images": rows(4, 2), "scale": torch.tensor(3.0), "names": ["cat", "dog"], "epoch": 7, "none": None}
    for each in split(batch, 2):
        assert each["scale"].item() == 3 and each["names"] == ["cat", "dog"] and each["epoch"] == 7
        assert each["none"] is None


def test_one_part_is_the_batch_itself() -> None:
    batch = object()  # nothing need be known of it
    assert split(batch, 1) == [batch]


@pytest.mark.parametrize("batch", [object(), "text", None, [], {}, torch.tensor(1.0), [1, 2], {"a": "b"}])
def test_images_that_cannot_be_counted(batch: Any) -> None:
    with pytest.raises(InputError, match=r"images cannot be counted\. Set accumulate=1"):
        split(batch, 2)


def test_fields_of_another_length_are_refused() -> None:
    boxes_of_all_images = {"img": rows(4, 3, 8, 8), "bboxes": rows(11, 4)}
    with pytest.raises(InputError, match=r"shape \(11, 4\) in a batch of 4 images has no row for each image"):
        split(boxes_of_all_images, 2)


def test_what_can_be_read_in_two_ways_is_refused() -> None:
    with pytest.raises(InputError, match="can be an entry for each image or so many fields"):
        split((rows(2, 5), (rows(2), rows(2))), 2)


def test_three_images_with_three_channels_are_images() -> None:
    parts = split(([picture(k) for k in range(3)], rows(3)), 3)
    assert [len(part[0]) for part in parts] == [1, 1, 1]


def test_no_fewer_than_one_part() -> None:
    with pytest.raises(InputError, match="1 micro-batch or more; got 0"):
        split(rows(4), 0)


def test_moved_keeps_the_form() -> None:
    batch = {"a": [rows(2), (rows(2), "text")], "b": None}
    there = move_batch(batch, torch.device("meta"))
    assert there["a"][0].device.type == there["a"][1][0].device.type == "meta"
    assert there["a"][1][1] == "text" and there["b"] is None
