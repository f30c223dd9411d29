"""``oomproof.read_dataset``: recognises a dataset's format and reads its annotations."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from oomproof.data.annotations import coco, image_folder, tfrecord, voc, yolo
from oomproof.data.annotations.collect import Say
from oomproof.data.annotations.dataset import Dataset
from oomproof.data.annotations.regular_files import is_folder, reason
from oomproof.errors import InputError

Format = tuple[Callable[[Path], bool], Callable[[Path, Path | None, str, Say], Dataset]]
FORMATS: tuple[Format, ...] = tuple((form.recognises, form.read) for form in (yolo, coco, voc, tfrecord, image_folder))
"""in the order in which they are tried: any folder with pictures in it is an image folder"""
EXPECTED = "expected a COCO JSON file, a Pascal VOC or YOLO folder, YOLO's data.yaml, TFRecords, or a folder of images"


def read_dataset(
    path: str | os.PathLike[str],
    images: str | os.PathLike[str] | None = None,
    *,
    split: str = "",
    progress: Say | None = None,
) -> Dataset:
    """What the annotations at ``path`` say of each image: its size, its objects, their masks.

    ``images``: the folder that holds the images, where it is not where the format has it. ``split``: one part of a
    dataset that has several, «train» or «val». ``progress(doing, part)`` is called now and then; part goes from 0 to 1.
    """
    place, folder = Path(path), None if images is None else Path(images)
    if tfrecord.is_pattern(str(path)):
        if folder is not None or split:
            raise InputError(
                f"{path} is a pattern of TFRecord files, which hold their images: leave out --images, --split"
            )
        return read_records([str(path)], progress=progress)
    if folder is not None and not is_folder(folder):
        raise InputError(f"there is no folder of images {folder}; check --images")
    try:
        place.stat()
        for recognises, read in FORMATS:
            if recognises(place):
                return read(place, folder, split, progress or _say_nothing)
    except FileNotFoundError:
        raise InputError(f"there is no {place}: {EXPECTED}") from None
    except OSError as error:
        raise InputError(f"cannot read {place}: {reason(error)}; {EXPECTED}") from None
    except ValueError:  # a NUL in the path
        raise InputError(f"not a path: {str(place)!r}; {EXPECTED}") from None
    raise InputError(f"{place} is not a dataset that is known: {EXPECTED}")


def read_records(patterns: Sequence[str | os.PathLike[str]], *, progress: Say | None = None) -> Dataset:
    """TFRecord files by name or pattern, several of them as one dataset, whatever their names end in."""
    names = [os.fspath(each) for each in patterns]
    files = tfrecord.find_records(names)
    name = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
    return tfrecord.read_files(Path(name), files, progress or _say_nothing)


def _say_nothing(doing: str, part: float) -> None:
    pass
