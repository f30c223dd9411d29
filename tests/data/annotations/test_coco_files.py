"""COCO's JSON: what is broken in it is counted and named, and what is not is read all the same."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from dataset_files import Box, Picture, coco, png, write_coco
from hypothesis import given, settings
from hypothesis import strategies as st

from oomproof import Dataset, InputError, read_dataset
from oomproof.data.annotations import coco_stream

ONE = Picture("one.png", 64, 48, (Box(0, 0, 10, 10, 5), Box(5, 5, 20, 20)))
TWO = Picture("two.png", 100, 80, (Box(1, 1, 2, 2),))


def written(content: Any, path: Path) -> Path:
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def counted(dataset: Dataset) -> dict[str, int]:
    return {problem.kind: problem.count for problem in dataset.problems}


def test_masks_as_run_lengths_and_as_text(tmp_path: Path) -> None:
    content = coco([ONE, TWO])
    content["annotations"][0]["segmentation"] = {"size": [48, 64], "counts": [3, 4, 5, 6]}
    content["annotations"][1]["segmentation"] = {"counts": "a" * 77, "size": [48, 64]}
    content["annotations"][2]["segmentation"] = [[1, 2, 3, 4, 5, 6], [7, 8, 9, 1, 2, 3, 4, 5]]
    dataset = read_dataset(written(content, tmp_path / "a.json"))
    assert dataset.mask_bytes.tolist() == [16, 77, 0]
    assert dataset.vertices.tolist() == [0, 0, 7]


@pytest.mark.parametrize(
    ("change", "kind", "left"),
    [
        (lambda c: c["annotations"][0].update(image_id=99), "annotation of an unknown image", [1, 1]),
        (lambda c: c["annotations"][0].pop("image_id"), "annotation of an unknown image", [1, 1]),
        (lambda c: c["annotations"][0].update(bbox=[1, 1, 0, 5]), "box without area", [1, 1]),
        (lambda c: c["annotations"][0].update(bbox=[1, 1, -3, 5]), "box without area", [1, 1]),
        (lambda c: c["annotations"][0].update(bbox=[60, 1, 30, 5]), "box outside its image", [2, 1]),
        (lambda c: c["annotations"][0].update(bbox=[-9, 1, 30, 5]), "box outside its image", [2, 1]),
        (lambda c: c["annotations"][0].update(bbox=[1, 2, 3]), "annotation without a usable box", [1, 1]),
        (lambda c: c["annotations"][0].update(bbox=["1", 2, 3, 4]), "annotation without a usable box", [1, 1]),
        (lambda c: c["annotations"][0].update(bbox="1,2,3,4"), "annotation without a usable box", [1, 1]),
        (lambda c: c["annotations"][0].update(bbox=[1e30, 2, 3, 4]), "annotation without a usable box", [1, 1]),
        (lambda c: c["annotations"][0].update(bbox=[1, 2, 3, 10**300]), "annotation without a usable box", [1, 1]),
        (lambda c: c["annotations"][0].pop("bbox"), "annotation without a usable box", [1, 1]),
        (lambda c: c["annotations"][0].update(id=2), "annotation id that came before", [2, 1]),
        (lambda c: c["images"].append(c["images"][0]), "image id that came before", [2, 1]),
        (lambda c: c["images"].append({"file_name": "x"}), "image entry that cannot be used", [2, 1]),
        (lambda c: c["images"][1].pop("width"), "image without a size", [2]),
        (lambda c: c["images"][1].update(width=0), "image without a size", [2]),
        (lambda c: c["images"][1].update(width="80"), "image without a size", [2]),
        (lambda c: c["images"][1].update(height=10**12), "image without a size", [2]),
    ],
)
def test_broken_entries(tmp_path: Path, change: Any, kind: str, left: list[int]) -> None:
    content = coco([ONE, TWO])
    change(content)
    dataset = read_dataset(written(content, tmp_path / "a.json"))
    assert counted(dataset) == {kind: 1}
    assert dataset.problems[0].examples[0]
    assert dataset.objects.tolist() == left


def test_numbers_that_only_python_writes(tmp_path: Path) -> None:
    """Ids of 128 bits, as uuid4().int makes them; NaN in a box. ijson refuses both, Python reads both."""
    content = coco([ONE, TWO])
    content["images"][0]["id"] = 2**127 + 1
    for entry in content["annotations"][:2]:
        entry["image_id"] = 2**127 + 1
    content["annotations"][1]["bbox"][2] = float("nan")
    content["annotations"][2]["area"] = float("-inf")
    dataset = read_dataset(written(content, tmp_path / "a.json"))
    assert dataset.objects.tolist() == [1, 1]
    assert counted(dataset) == {"annotation without a usable box": 1}


def test_a_file_that_ends_early_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    whole = json.dumps(coco([ONE, TWO]))
    dataset = read_dataset(written(whole[: whole.index('"id": 3')], tmp_path / "a.json"))
    assert dataset.objects.tolist() == [2, 0]
    assert list(counted(dataset)) == ["file damaged; what comes before was read"]


def test_nothing_left_is_an_error_that_says_why(tmp_path: Path) -> None:
    content = coco([ONE])
    del content["images"][0]["width"]
    with pytest.raises(InputError, match=r"image without a size, once \(one.png\)"):
        read_dataset(written(content, tmp_path / "a.json"))
    with pytest.raises(InputError, match="has no images in it"):
        read_dataset(written({"images": []}, tmp_path / "b.json"))
    with pytest.raises(InputError, match="a list, as results are"):
        read_dataset(written([{"image_id": 1}], tmp_path / "c.json"))


def test_sizes_from_files(tmp_path: Path) -> None:
    content = coco([ONE, TWO])
    del content["images"][0]["width"]
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "one.png").write_bytes(png(64, 48))
    (tmp_path / "images" / "two.png").write_bytes(png(80, 100))
    dataset = read_dataset(written(content, tmp_path / "a.json"), tmp_path / "images")
    assert (dataset.widths.tolist(), dataset.heights.tolist()) == ([64, 80], [48, 100])
    assert counted(dataset) == {"annotated size is not the file's": 1}
    assert dataset.problems[0].examples == ("two.png: 80x100 annotated, 100x80 in the file",)
    (tmp_path / "images" / "two.png").unlink()
    dataset = read_dataset(tmp_path / "a.json", tmp_path / "images")
    assert (len(dataset), counted(dataset)) == (2, {"image file that cannot be read": 1})


def test_lvis_names_images_by_their_address(tmp_path: Path) -> None:
    content = coco([ONE])
    content["images"][0] = {"id": 0, "coco_url": "http://x/train2017/7.jpg", "width": 64, "height": 48}
    assert read_dataset(written(content, tmp_path / "a.json")).names == ("7.jpg",)


def test_an_export_with_its_images_beside_it(tmp_path: Path) -> None:
    write_coco([ONE, TWO], tmp_path / "_annotations.coco.json")
    (tmp_path / "one.png").write_bytes(png(64, 48))
    assert (read_dataset(tmp_path).format, read_dataset(tmp_path).problems) == ("COCO", ())


def test_progress_goes_up_to_all_of_it(tmp_path: Path) -> None:
    parts: list[float] = []
    read_dataset(write_coco([ONE] * 50, tmp_path / "a.json"), progress=lambda _, part: parts.append(part))
    assert parts == sorted(parts) and 0.89 < parts[-1] <= 1


TEXTS = st.text(st.sampled_from('"\\[]{}:, 1segmntatiocounkyp'), max_size=30)


@settings(deadline=None)
@given(
    st.lists(
        st.one_of(TEXTS, st.lists(st.integers()), st.lists(st.lists(st.floats(allow_nan=False, allow_infinity=False)))),
        max_size=8,
    ),
    st.integers(1, 200),
    st.sampled_from([None, 1]),
)
def test_lists_are_counted_and_nothing_else_is_changed(values: list[Any], block: int, indent: int | None) -> None:
    """However blocks are cut, and whatever texts look like."""
    entries = [
        {key: value, value if isinstance(value, str) else "k": 1}
        for value in values
        for key in ("counts", "segmentation")
    ]
    given_text = json.dumps({"x": entries, "end": '"counts": [1, 2]'}, indent=indent)

    class Slow(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            return super().read(min(block, size or 0))

    stream = coco_stream.CountedLists(Slow(given_text.encode()), lambda _: None)
    read = b"".join(iter(lambda: stream.read(1 << 20), b""))

    def numbers(value: Any) -> Any:
        return sum(map(numbers, value)) if isinstance(value, list) else 1

    def replaced(entry: dict[str, Any]) -> dict[str, Any]:
        return {
            key: _without_commas_of_empty(value, numbers)
            if key in ("counts", "segmentation") and isinstance(value, list)
            else value
            for key, value in entry.items()
        }

    expected = json.loads(given_text)
    expected["x"] = [replaced(entry) for entry in expected["x"]]
    assert json.loads(read) == expected


def _without_commas_of_empty(value: list[Any], numbers: Any) -> int:
    """Empty lists among others count as one number each: [[1, 2], []] has two commas. No polygon is empty."""
    if not numbers(value):
        return 0
    return sum(max(1, numbers(each)) for each in value)
