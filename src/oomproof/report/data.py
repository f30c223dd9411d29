"""A dataset as text: what is in it, how many objects an image has, the worst images, what is broken. And as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from oomproof.data.annotations.dataset import Dataset
from oomproof.data.annotations.problems import printable
from oomproof.data.annotations.profile import Image, Profile, Size
from oomproof.report.bars import bar, can_print
from oomproof.report.sizes import shorten, value

LONGEST_NAME = 48
WORST = {"crowded": "Most objects", "huge": "Largest images", "detailed": "Most detailed masks"}


def report(of: Dataset, in_figures: Profile) -> RenderableType:
    """``in_figures`` is the profile of the dataset."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, text in _facts(of, in_figures):
        grid.add_row(name, Text(text))
    return Group(
        grid,
        *_section("Images by how many objects they have", Histogram(in_figures.histogram, in_figures.images)),
        *(part for kind in WORST for part in _worst(kind, getattr(in_figures, kind))),
        *_section("Broken entries", _problems(of)),
    )


def document(of: Dataset, in_figures: Profile) -> dict[str, Any]:
    """What docs/json.md promises."""
    return {
        "path": of.path,
        "format": of.format,
        "images": in_figures.images,
        "objects": {
            "count": in_figures.objects,
            "median": in_figures.median_objects,
            "most_of_95_percent": in_figures.most_of_95,
            "most": in_figures.most_objects,
            "crowds": in_figures.crowds,
            "masks": in_figures.masks,
        },
        "empty_images": in_figures.empty,
        "turned_images": in_figures.turned,
        "sizes": {
            "smallest": list(in_figures.smallest),
            "median": list(in_figures.median),
            "largest": list(in_figures.largest),
            "different": in_figures.sizes,
            "common": [{"size": list(size), "images": count} for size, count in in_figures.common],
        },
        "histogram": [{"at_least": low, "at_most": high, "images": count} for low, high, count in in_figures.histogram],
        "worst": {
            "objects": [_image_document(image) for image in in_figures.crowded],
            "size": [_image_document(image) for image in in_figures.huge],
            "masks": [_image_document(image) for image in in_figures.detailed],
        },
        "problems": [
            {"kind": problem.kind, "count": problem.count, "examples": list(problem.examples)}
            for problem in of.problems
        ],
        "notes": list(of.notes),
    }


@dataclass(frozen=True)
class Histogram:
    """One bar a row, as wide as the console lets it be."""

    rows: Sequence[tuple[int, int, int]]
    whole: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        grid = Table.grid(padding=(0, 2), pad_edge=False)
        grid.add_column(justify="right", no_wrap=True)
        grid.add_column(justify="right", no_wrap=True)
        grid.add_column(justify="right", no_wrap=True, style="dim")
        grid.add_column(no_wrap=True)
        most, blocks = max(count for _, _, count in self.rows), can_print(console, "▏█")
        for low, high, count in self.rows:
            share = count / self.whole
            drawn = bar(count / most, max(4, min(40, options.max_width - 36)), blocks) if count else ""
            part = f"{share:.0%}" if share >= 0.005 or not count else "<1%"
            grid.add_row(f"{low}" if low == high else f"{low}-{high}", f"{count:,}", part, Text(drawn, style="cyan"))
        yield grid


def _facts(of: Dataset, figures: Profile) -> Iterator[tuple[str, str]]:
    yield "Dataset", f"{printable(of.path)} ({of.format}{''.join(f'; {printable(note)}' for note in of.notes)})"
    with_objects = f", {figures.objects:,} {_plural('object', figures.objects)}" if figures.objects else ""
    yield "Holds", f"{figures.images:,} {_plural('image', figures.images)}{with_objects}{_masks(figures)}"
    if figures.sizes == 1:
        yield "Sizes", f"all {value(figures.largest)} (height x width)"
    else:
        spread = f"{value(figures.smallest)} to {value(figures.largest)}, median {value(figures.median)}, by area"
        yield "Sizes", f"{spread}; {figures.sizes:,} different (height x width)"
        yield "", "most common: " + ", ".join(_share(size, count, figures.images) for size, count in figures.common)
    if figures.turned:
        yield "", f"{figures.turned:,} of the files are stored on their side (EXIF); sizes here are as shown"
    if figures.objects:
        spread = f"median {figures.median_objects:,}, 95 % of images have {figures.most_of_95:,} or fewer"
        none = f"; {figures.empty:,} {_plural('image', figures.empty)} without any" if figures.empty else ""
        yield "Objects", f"{spread}, most {figures.most_objects:,}{none}"


def _masks(figures: Profile) -> str:
    masks = f", {figures.masks:,} with masks" if figures.masks else ""
    return f"{masks}, {figures.crowds:,} of them crowds" if figures.crowds else masks


def _share(size: Size, count: int, whole: int) -> str:
    return f"{value(size)} ({count / whole:.0%})" if count / whole >= 0.005 else f"{value(size)} ({count:,})"


def _worst(kind: str, images: Sequence[Image]) -> list[RenderableType]:
    if not images or (kind == "huge" and len({(image.height, image.width) for image in images}) == 1 < len(images)):
        return []  # the largest of equals would be any of them
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("image", overflow="fold")
    columns = {"objects": [f"{image.objects:,}" for image in images]}
    columns["size"] = [value((image.height, image.width)) for image in images]
    if any(image.vertices for image in images):
        columns["vertices"] = [f"{image.vertices:,}" for image in images]
    if any(image.mask_bytes for image in images):
        columns["bytes of masks"] = [f"{image.mask_bytes:,}" for image in images]
    for heading in columns:
        table.add_column(heading, justify="right", no_wrap=True)
    for image, *cells in zip(images, *columns.values(), strict=True):
        table.add_row(shorten(printable(image.name), LONGEST_NAME), *cells)
    return _section(WORST[kind], table)


def _problems(of: Dataset) -> RenderableType | None:
    if not of.problems:
        return None
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(justify="right", no_wrap=True, style="yellow")
    table.add_column(overflow="fold")
    for problem in of.problems:
        more = ", ..." if problem.count > len(problem.examples) else ""
        examples = f"{', '.join(problem.examples)}{more}"
        table.add_row(f"{problem.count:,}", Text.assemble(problem.kind, (f"  {examples}", "dim")))
    return table


def _section(title: str, body: RenderableType | None) -> list[RenderableType]:
    return [] if body is None else [Text(f"\n{title}", style="bold"), Padding(body, (0, 0, 0, 2))]


def _image_document(image: Image) -> dict[str, Any]:
    return {
        "name": image.name,
        "size": [image.height, image.width],
        "objects": image.objects,
        "vertices": image.vertices,
        "mask_bytes": image.mask_bytes,
    }


def _plural(word: str, count: int) -> str:
    return word if count == 1 else f"{word}s"
