"""Sizes from the headers of image files: where annotations have none, or to hold theirs against the files."""

from __future__ import annotations

import os
from pathlib import Path

from oomproof.data.annotations import problems as kinds
from oomproof.data.annotations.collect import Collector, Say
from oomproof.data.annotations.image_header import Header, read_header
from oomproof.data.annotations.regular_files import open_regular, reason

BUFFER = 4096
"""bytes; most sizes stand in the first thousand"""


def header_of(path: str | os.PathLike[str]) -> Header | None:
    """The size in a file's header; OSError if it cannot be read, none if it is not an image that is known."""
    with open_regular(path, BUFFER) as file:
        return read_header(file)


def take_sizes_from_files(found: Collector, folder: Path, compare: bool, say: Say) -> None:
    """Looks for images by their names below ``folder``; with ``compare`` also for those whose size is annotated.

    What the file says counts: it is what a training decodes.
    """
    rows = [row for row, there in enumerate(found.there) if there and (compare or not found.widths[row])]
    for done, row in enumerate(rows):
        if done % 256 == 0:
            say("reading the sizes of images from their headers", 0.9 + 0.1 * done / len(rows))
        name = found.names[row]
        try:
            header = header_of(folder / name)
        except OSError as error:
            found.problems.add(kinds.NO_FILE, f"{name}: {reason(error)}")
            continue
        if header is None:
            found.problems.add(kinds.NO_FILE, f"{name}: not a JPEG, PNG, GIF, BMP or WebP")
            continue
        annotated = found.widths[row], found.heights[row]
        shown = (header.height, header.width) if header.turned else header[:2]
        if annotated[0] and annotated not in (header[:2], shown):
            said = f"{annotated[1]}x{annotated[0]} annotated, {header.height}x{header.width} in the file"
            found.problems.add(kinds.OTHER_SIZE, f"{name}: {said}")
        found.set_size(row, *header)
