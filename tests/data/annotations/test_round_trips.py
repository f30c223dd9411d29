"""Written in a format and read again: the same images and objects, whatever the format."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from dataset_files import Picture, pictures, write_coco, write_images, write_records, write_voc, write_yolo
from hypothesis import given, settings
from hypothesis import strategies as st

from oomproof import Dataset, read_dataset


def assert_same(dataset: Dataset, of: list[Picture], masks: str = "vertices", tolerance: float = 0.0) -> None:
    assert dataset.names == tuple(picture.name for picture in of)
    assert dataset.widths.tolist() == [picture.width for picture in of]
    assert dataset.heights.tolist() == [picture.height for picture in of]
    assert dataset.objects.tolist() == [len(picture.boxes) for picture in of]
    assert dataset.problems == ()
    for image, picture in enumerate(of):
        within = dataset.objects_of(image)
        assert sorted(getattr(dataset, masks)[within].tolist()) == sorted(box.vertices for box in picture.boxes)
        for column, side in ((dataset.box_widths, "width"), (dataset.box_heights, "height")):
            expected = sorted(getattr(box, side) for box in picture.boxes)
            np.testing.assert_allclose(sorted(column[within].tolist()), expected, rtol=0, atol=tolerance)
    totals = [sum(box.vertices for box in picture.boxes) for picture in of]
    assert (dataset.image_vertices if masks == "vertices" else dataset.image_mask_bytes).tolist() == totals


@settings(deadline=None)
@given(pictures(), st.booleans(), st.sampled_from([None, 1]))
def test_coco(of: list[Picture], backwards: bool, indent: int | None) -> None:
    with TemporaryDirectory() as folder:
        dataset = read_dataset(write_coco(of, Path(folder) / "a.json", backwards, indent))
    crowds = [box.crowd for picture in of for box in picture.boxes]
    assert dataset.crowd.sum() == sum(crowds)
    if backwards:  # images come in the order in which they are first named
        place = {name: number for number, name in enumerate(dataset.names)}
        of = sorted(of, key=lambda picture: place[picture.name])
    assert_same(dataset, of)


@settings(deadline=None)
@given(pictures(polygons=False, crowds=False))
def test_voc(of: list[Picture]) -> None:
    with TemporaryDirectory() as folder:
        assert_same(read_dataset(write_voc(of, Path(folder) / "VOC2007")), of)
        assert_same(read_dataset(folder), of)


@settings(deadline=None)
@given(pictures(crowds=False), st.sampled_from(["", "data.yaml", "images and labels"]))
def test_yolo(of: list[Picture], named: str) -> None:
    with TemporaryDirectory() as folder:
        written = write_yolo(of, Path(folder))
        if named == "images and labels":
            (written / "data.yaml").unlink()
        dataset = read_dataset(written / "data.yaml" if named == "data.yaml" else written)
    assert_same(dataset, of, tolerance=1e-3)


@settings(deadline=None)
@given(pictures(), st.booleans())
def test_tfrecord(of: list[Picture], sizes: bool) -> None:
    with TemporaryDirectory() as folder:
        dataset = read_dataset(write_records(of, Path(folder) / "train.record", sizes))
    assert_same(dataset, of, "mask_bytes", tolerance=1e-3)
    assert dataset.crowd.tolist() == [box.crowd for picture in of for box in picture.boxes]


@settings(deadline=None)
@given(pictures())
def test_image_folder(of: list[Picture]) -> None:
    with TemporaryDirectory() as folder:
        write_images(of, Path(folder) / "class")
        dataset = read_dataset(folder)
    assert dataset.names == tuple(f"class/{picture.name}" for picture in of)
    assert dataset.heights.tolist() == [picture.height for picture in of]
    assert dataset.objects.tolist() == [0] * len(of)
