"""data.yaml of YOLO: where the images of each split are, as Ultralytics looks for them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oomproof.data.annotations.image_header import SUFFIXES
from oomproof.data.annotations.regular_files import is_folder, is_regular, list_files, read_regular, reason
from oomproof.errors import InputError

LARGEST = 4 << 20
LONGEST_LIST = 256 << 20
SPLITS = ("train", "val", "test")


@dataclass(frozen=True)
class DataYaml:
    file: Path
    content: dict[Any, Any]


@dataclass(frozen=True)
class Split:
    name: str
    images: tuple[Path, ...]
    keypoints: int
    """numbers that follow a box; labels of any other length are polygons"""


def read_yaml(file: Path) -> DataYaml:
    import yaml

    try:
        text = read_regular(file, LARGEST).decode("utf-8-sig")
        content = yaml.load(text, _flat_loader())
    except OSError as error:
        raise InputError(f"cannot read {file}: {reason(error)}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{file} is not text in UTF-8 (byte {error.start}); expected YOLO's data.yaml") from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(f"{file} is not YAML: {first}; expected YOLO's data.yaml") from None
    if not isinstance(content, dict) or not any(split in content for split in SPLITS):
        raise InputError(f"{file} is not YOLO's data.yaml: expected the keys train, val and names in it")
    return DataYaml(file, content)


def images_of_split(of: DataYaml, split: str) -> Split:
    """The images that ``split`` names: folders, or lists of files."""
    given = of.content.get(split)
    if not given:
        named = [str(name) for name in of.content if name in SPLITS and of.content[name]]
        raise InputError(f"{of.file} has no split {split!r}; it has {', '.join(named)}: choose with --split")
    places = given if isinstance(given, list) else [given]
    found: list[Path] = []
    for place in places:
        found += _images_at(_find(of, str(place)))
    if not found:
        raise InputError(f"{split} of {of.file} has no images: {', '.join(map(str, places))[:200]}")
    return Split(split, tuple(found), _numbers_of_keypoints(of.content.get("kpt_shape")))


def _numbers_of_keypoints(shape: Any) -> int:
    match shape:
        case [int(count), int(each)] if 0 < count <= 10_000 and 2 <= each <= 3:
            return count * each
    return 0


def _find(of: DataYaml, place: str) -> Path:
    """«path» is relative to where one trains, or to the file; exports of Roboflow have a «../» too many."""
    here = of.file.parent
    base = Path(str(of.content.get("path") or ""))
    tried = [here / base / place, base / place, here / place]
    if place.startswith("../"):
        tried += [here / base / place[3:], here / place[3:]]
    for path in tried:
        if is_folder(path) or is_regular(path):
            return path
    raise InputError(f"{of.file} names {place}, which is not at {tried[0]}; check path and train in it")


def _images_at(path: Path) -> list[Path]:
    if is_folder(path):
        return list_files(path, SUFFIXES)
    try:
        lines = read_regular(path, LONGEST_LIST).decode("utf-8", "surrogateescape").splitlines()
    except OSError as error:
        raise InputError(f"cannot read {path}: {reason(error)}") from None
    names = [line.strip() for line in lines]
    return [path.parent / name for name in names if name]


def _flat_loader() -> Any:
    """PyYAML's safe reader without anchors: with them a short file can stand for a list without end."""
    import yaml

    class Flat(yaml.SafeLoader):  # type: ignore[misc]  # PyYAML brings no types, so its classes are Any to mypy
        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                raise yaml.YAMLError("it has aliases, which data.yaml does not need")
            return super().compose_node(parent, index)

    return Flat
