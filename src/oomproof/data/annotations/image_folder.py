"""A folder of images without annotations, or of images by class: sizes from their headers, no objects."""

from __future__ import annotations

from pathlib import Path

from oomproof.data.annotations.collect import Collector, Say
from oomproof.data.annotations.dataset import Dataset
from oomproof.data.annotations.header_sizes import take_sizes_from_files
from oomproof.data.annotations.image_header import SUFFIXES
from oomproof.data.annotations.regular_files import has_file, is_folder, list_files
from oomproof.errors import InputError

NAME = "image folder"


def recognises(path: Path) -> bool:
    return is_folder(path) and has_file(path, SUFFIXES, deep=True)


def read(path: Path, images: Path | None, split: str, say: Say) -> Dataset:
    if images is not None:
        raise InputError(f"{path} is a folder of images by itself: leave out --images")
    where = path / split if split else path
    if not is_folder(where):
        raise InputError(f"{path} has no folder {split!r}; leave out --split, or name a folder of it")
    found = Collector(where, NAME)
    say("looking for images", 0.0)
    for file in list_files(where, SUFFIXES):
        found.add_image(file.relative_to(where).as_posix(), 0, 0)
    take_sizes_from_files(found, where, False, lambda doing, part: say(doing, (part - 0.9) * 10))
    return found.build()
