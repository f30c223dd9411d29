"""Pascal VOC and YOLO: splits, what is found where, and what is broken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from dataset_files import Box, Picture, png, write_images, write_voc, write_yolo

from oomproof import Dataset, InputError, read_dataset
from oomproof.data.annotations import problems, yolo

ONE = Picture("one.png", 64, 48, (Box(0, 0, 10, 10), Box(5, 5, 20, 20)))
TWO = Picture("two.png", 100, 80, (Box(1, 1, 2, 2),))


def counted(dataset: Dataset) -> dict[str, int]:
    return {problem.kind: problem.count for problem in dataset.problems}


def test_a_split_of_voc(tmp_path: Path) -> None:
    write_voc([ONE, TWO], tmp_path)
    (tmp_path / "ImageSets" / "Main").mkdir(parents=True)
    (tmp_path / "ImageSets" / "Main" / "train.txt").write_text("two\nthree\n")
    dataset = read_dataset(tmp_path, split="train")
    assert (dataset.names, dataset.notes) == (("two.png",), ("train: 1 of its 2 names have annotations",))
    with pytest.raises(InputError, match="did you mean train"):
        read_dataset(tmp_path, split="trian")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "<annotation>",
        "<other/>",
        "<annotation></other>",
        "<annotation>" * 100,
        '<!DOCTYPE a [<!ENTITY b "cc">]><annotation>&b;</annotation>',
        '<!DOCTYPE a SYSTEM "file:///etc/hostname"><annotation/>',
        '<?xml version="1.0" encoding="martian"?><annotation/>',
        b"<annotation>\xff\xfe</annotation>",
    ],
    ids=repr,
)
def test_xml_that_cannot_be_read(tmp_path: Path, text: Any) -> None:
    write_voc([ONE], tmp_path)
    (tmp_path / "Annotations" / "bad.xml").write_bytes(text if isinstance(text, bytes) else text.encode())
    dataset = read_dataset(tmp_path)
    assert (len(dataset), counted(dataset)) == (1, {"annotation file that cannot be read": 1})
    assert dataset.problems[0].examples[0].startswith("bad.xml: ")


def test_a_billion_laughs_are_not_laughed(tmp_path: Path) -> None:
    """Entities of entities: 3 GB of text from a kilobyte, were they expanded."""
    entities = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))
    text = f'<!DOCTYPE a [<!ENTITY l0 "lol">{entities}]><annotation><filename>&l9;</filename></annotation>'
    (tmp_path / "a.xml").write_text(text)
    with pytest.raises(InputError, match="document type or entities"):
        read_dataset(tmp_path)


def test_voc_takes_sizes_from_images_where_it_has_none(tmp_path: Path) -> None:
    write_voc([ONE, TWO], tmp_path)
    for path in (tmp_path / "Annotations").iterdir():
        path.write_text(path.read_text().replace("<width>64", "<width>0").replace("<xmin>1</xmin><ymin>1</ymin>", ""))
    write_images([ONE], tmp_path / "JPEGImages")
    dataset = read_dataset(tmp_path)
    assert dataset.widths.tolist() == [64, 100]
    assert dataset.objects.tolist() == [2, 0]
    assert counted(dataset) == {"annotation without a usable box": 1}


def test_numbers_that_are_none(tmp_path: Path) -> None:
    write_voc([ONE], tmp_path)
    path = tmp_path / "Annotations" / "one.xml"
    path.write_text(path.read_text().replace("<xmax>10<", f"<xmax>{'9' * 5000}<").replace("<xmax>25<", "<xmax>nan<"))
    dataset = read_dataset(tmp_path)
    assert (dataset.objects.tolist(), counted(dataset)) == ([0], {"annotation without a usable box": 2})


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("0 0.5 0.5 0.2", "annotation without a usable box"),
        ("0 0.5 0.5 0.2 nan", "annotation without a usable box"),
        ("0 0.5 0.5 0.2 1e300", "annotation without a usable box"),
        ("a b c d e", "annotation without a usable box"),
        ("0 0.1 0.1 0.2 0.2 0.3", "annotation without a usable box"),
        ("0 0.1 0.1 0.2 0.2 0.3 0.3 0.4", "annotation without a usable box"),
        ("0 0.5 0.5 0 0.2", "box without area"),
        ("0 0.5 0.5 2 0.2", "box outside its image"),
    ],
)
def test_labels_that_are_broken(tmp_path: Path, line: str, kind: str) -> None:
    write_yolo([ONE], tmp_path)
    label = tmp_path / "labels" / "train" / "one.txt"
    label.write_text(f"{label.read_text()}\n{line}\n")
    dataset = read_dataset(tmp_path)
    assert counted(dataset) == {kind: 1}
    assert dataset.objects.tolist() == [3 if kind == problems.OUTSIDE else 2]


def test_keypoints_are_no_polygon(tmp_path: Path) -> None:
    write_yolo([Picture("a.png", 10, 10, ())], tmp_path)
    (tmp_path / "labels" / "train" / "a.txt").write_text("0 0.5 0.5 0.2 0.4 0.1 0.1 2 0.2 0.2 2\n")
    (tmp_path / "data.yaml").write_text("train: images/train\nkpt_shape: [2, 3]\n")
    dataset = read_dataset(tmp_path)
    assert (dataset.vertices.tolist(), dataset.box_heights.tolist()) == ([0], [4.0])


@pytest.mark.parametrize(
    "text",
    [
        "train: {folder}/images/train",
        "path: {folder}\ntrain: images/train",
        "train: ../images/train",
        "train: [images/train]",
        "train: list.txt",
    ],
)
def test_where_data_yaml_may_say_images_are(tmp_path: Path, text: str) -> None:
    write_yolo([ONE, TWO], tmp_path)
    (tmp_path / "list.txt").write_text("./images/train/one.png\nimages/train/two.png\n")
    (tmp_path / "data.yaml").write_text(text.format(folder=tmp_path))
    assert read_dataset(tmp_path / "data.yaml").objects.tolist() == [2, 1]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("train: nowhere", "which is not at"),
        ("val: images/train", "has no split 'train'; it has val"),
        ("names: [a]", "not YOLO's data.yaml"),
        ("[1, 2", "is not YAML"),
        ("train: images/empty", "has no images"),
        ("a: &a [x, x]\ntrain: [*a, *a]", "aliases"),
        ("train: " + "[" * 3000 + "]" * 3000, "is not YAML"),
        ("MODEL: {}\n", "not YOLO's data.yaml"),
    ],
)
def test_data_yaml_that_cannot_be_used(tmp_path: Path, text: str, said: str) -> None:
    write_yolo([ONE], tmp_path)
    (tmp_path / "images" / "empty").mkdir()
    (tmp_path / "data.yaml").write_text(text)
    with pytest.raises(InputError, match=said) as raised:
        read_dataset(tmp_path)
    assert "\n" not in str(raised.value)


def test_labels_beside_images(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(png(10, 20))
    (tmp_path / "a.txt").write_text("3 0.5 0.5 0.5 0.5\n")
    dataset = read_dataset(tmp_path)
    assert (dataset.format, dataset.box_heights.tolist()) == ("YOLO", [10.0])


def test_an_image_on_its_side_has_its_boxes_on_its_side(tmp_path: Path) -> None:
    from PIL import Image

    exif = Image.Exif()
    exif[0x0112] = 6
    (tmp_path / "labels").mkdir()
    (tmp_path / "images").mkdir()
    Image.new("RGB", (40, 20)).save(tmp_path / "images" / "a.jpg", exif=exif)
    (tmp_path / "labels" / "a.txt").write_text("0 0.5 0.5 1 1\n")
    dataset = read_dataset(tmp_path)
    assert (dataset.widths[0], dataset.heights[0], dataset.turned[0]) == (40, 20, True)
    assert (dataset.box_widths[0], dataset.box_heights[0]) == (20, 40)
    assert dataset.problems == ()


def test_the_last_images_folder_of_a_path_is_labels() -> None:
    assert yolo._labels_of(Path("/images/a/images/b/c.jpg")) == Path("/images/a/labels/b/c.txt")
    assert yolo._labels_of(Path("/d/images.jpg")) == Path("/d/images.txt")
