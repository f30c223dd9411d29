"""Pascal VOC: a folder with Annotations/NAME.xml and JPEGImages/NAME.jpg, or XML files beside their images.

A split is a list of names: ImageSets/Main/train.txt.
"""

from __future__ import annotations

from pathlib import Path

from oomproof.data.annotations import problems as kinds
from oomproof.data.annotations.collect import Collector, Say
from oomproof.data.annotations.dataset import Dataset
from oomproof.data.annotations.header_sizes import take_sizes_from_files
from oomproof.data.annotations.regular_files import (
    has_file,
    is_folder,
    list_files,
    list_folders,
    open_regular,
    read_regular,
    reason,
)
from oomproof.data.annotations.voc_xml import NotVoc, Voc, parse
from oomproof.errors import InputError, did_you_mean

NAME = "Pascal VOC"
LONGEST_LIST = 256 << 20


def recognises(path: Path) -> bool:
    return is_folder(path) and (_home(path) is not None)


def read(path: Path, images: Path | None, split: str, say: Say) -> Dataset:
    home = _home(path) or path
    folder = home / "Annotations" if is_folder(home / "Annotations") else home
    files = list_files(folder, (".xml",))
    found = Collector(path, NAME)
    if split:
        names = _names_in(home, split)
        files = [file for file in files if file.relative_to(folder).with_suffix("").as_posix() in names]
        found.notes.append(f"{split}: {len(files):,} of its {len(names):,} names have annotations")
    doing = f"reading {len(files):,} annotations"
    for done, file in enumerate(files):
        if done % 64 == 0:
            say(doing, 0.9 * done / len(files))
        try:
            with open_regular(file) as stream:
                annotation = parse(stream)
        except OSError as error:
            found.problems.add(kinds.UNREADABLE, f"{file.name}: {reason(error)}")
        except NotVoc as error:
            found.problems.add(kinds.UNREADABLE, f"{file.name}: {error}")
        else:
            _add(found, annotation, file.relative_to(folder))
    where = images or (home / "JPEGImages" if is_folder(home / "JPEGImages") else folder)
    take_sizes_from_files(found, where, images is not None, say)
    return found.build()


def _add(found: Collector, annotation: Voc, file: Path) -> None:
    # A name without its ending is common; the file's own name then tells which image is meant, as loaders take it.
    name = annotation.name if "." in annotation.name else f"{file.with_suffix('').as_posix()}.jpg"
    row = found.add_image(name, annotation.width, annotation.height)
    assert row is not None  # only keys can come twice, and there are none
    for left, top, right, bottom, vertices in annotation.objects:
        # Corners count from 1, and both are within the box; trainings take the difference all the same.
        size = right - left, bottom - top
        if not found.add_object(row, left, top, *size, vertices=vertices, mask_bytes=0, crowd=False):
            found.problems.add(kinds.NO_BOX, name)
    if annotation.broken:
        found.problems.add(kinds.NO_BOX, name, annotation.broken)


def _home(path: Path) -> Path | None:
    """The folder itself, or the one folder in it that is the dataset: VOCdevkit/VOC2012."""
    if has_file(path, (".xml",)) or _has_annotations(path):
        return path
    inner = [each for each in list_folders(path) if _has_annotations(each)]
    if len(inner) > 1:
        names = ", ".join(each.name for each in inner[:5])
        raise InputError(f"{path} holds {len(inner)} Pascal VOC datasets ({names}); name one of them")
    return inner[0] if inner else None


def _has_annotations(path: Path) -> bool:
    return is_folder(path / "Annotations") and has_file(path / "Annotations", (".xml",), deep=True)


def _names_in(home: Path, split: str) -> set[str]:
    folder = home / "ImageSets" / "Main"
    splits = {file.stem: file for file in list_files(folder, (".txt",))} if is_folder(folder) else {}
    if split not in splits:
        known = f"; there are {', '.join(sorted(splits)[:20])}" if splits else "; it has no ImageSets/Main"
        raise InputError(f"{home} has no split {split!r}{did_you_mean(split, splits, known)}")
    try:
        text = read_regular(splits[split], LONGEST_LIST).decode("utf-8", "replace")
    except OSError as error:
        raise InputError(f"cannot read {splits[split]}: {reason(error)}") from None
    lines = (line.split() for line in text.splitlines())
    # In lists of a class a 1 or -1 stands behind the name; -1: not in the image.
    return {words[0] for words in lines if words}
