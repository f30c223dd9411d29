"""What a dataset's batches need, as text and JSON: the worst by its images, the typical one, chance and remedies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table

from oomproof.memory.batch_spec import ImageSpec
from oomproof.memory.epoch import Batch, Epoch, Remedy
from oomproof.report.sizes import describe_count, number

SHOWN = 16
"""images of a batch that are listed"""


def build_batches(epoch: Epoch) -> RenderableType:
    left = f", {epoch.left_out:,} without objects left out" if epoch.left_out else ""
    facts = Table.grid(padding=(0, 2))
    facts.add_column(no_wrap=True)
    facts.add_column(overflow="fold")
    images, batches = describe_count(epoch.images, "image"), describe_count(epoch.batches, "batch")
    facts.add_row("data", f"{epoch.data}: {images}{left}, {batches} an epoch")
    facts.add_row("rule", epoch.rule)
    if epoch.worst.outcome != "fits":
        facts.add_row("chance", describe_chance(epoch))
    for place, remedy in enumerate(epoch.remedies):
        facts.add_row("" if place else "remedy", ("or " if place else "") + describe_remedy(remedy))
    return Group(facts, "", _table(epoch))


def describe_chance(epoch: Epoch) -> str:
    below = "less than " if epoch.chance_is_bound else "about " if epoch.chance < 0.995 else ""
    of = "at risk" if epoch.worst.outcome == "at risk" else "over the budget"
    return f"{below}{epoch.chance:.3g} that an epoch has a batch that is {of}"


def describe_remedy(remedy: Remedy) -> str:
    named = ", ".join(remedy.images)
    more = f" and {remedy.count - len(remedy.images):,} more" if remedy.count > len(remedy.images) else ""
    if remedy.kind == "drop":
        return f"drop {describe_count(remedy.count, 'image')}: {named}{more}"
    if remedy.kind == "crop":
        return f"crop images with more than {remedy.limit} objects until they have no more: {named}{more}"
    return f"resize the shorter side to {remedy.limit}"


def _table(epoch: Epoch) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("batch", no_wrap=True)
    for heading in ("image", "size", "objects", "padded to", "device, GiB", "at worst"):
        table.add_column(heading, justify="left" if heading == "image" else "right", overflow="fold")
    for name, batch in (("worst", epoch.worst), ("typical", epoch.typical)):
        for row in _rows(name, batch):
            table.add_row(*row)
    return table


def _rows(name: str, batch: Batch) -> Iterator[tuple[str, ...]]:
    figures = (_size(*batch.padded), number(batch.on_device.expected), number(batch.on_device.high))
    for place, image in enumerate(batch.spec.most_crowded_first[:SHOWN]):
        first = place == 0
        own = (image.name, _size(image.height, image.width), str(image.objects))
        yield (name if first else "", *own, *(figures if first else ("", "", "")))
    if len(batch.spec.images) > SHOWN:
        yield ("", f"and {len(batch.spec.images) - SHOWN} more", "", "", "", "", "")


def _size(height: int, width: int) -> str:
    return f"{height}x{width}"


def epoch_document(of: Epoch) -> dict[str, Any]:
    return {
        "path": of.data,
        "images": of.images,
        "left_out": of.left_out,
        "batches": of.batches,
        "rule": of.rule,
        "exact": of.exact,
        "worst": _batch(of.worst),
        "typical": _batch(of.typical),
        "chance": float(f"{of.chance:.4g}"),
        "chance_is_bound": of.chance_is_bound,
        "remedies": [
            {"kind": each.kind, "limit": each.limit, "count": each.count, "images": list(each.images)}
            for each in of.remedies
        ],
        "traces": of.traces,
    }


def _batch(of: Batch) -> dict[str, Any]:
    return {
        "images": [_image(image) for image in of.spec.images],
        "padded": list(of.padded),
        "objects": of.spec.objects,
        "allocated": _range(of.allocated),
        "device": _range(of.on_device),
        "outcome": of.outcome,
    }


def _image(of: ImageSpec) -> dict[str, Any]:
    return {"name": of.name, "height": of.height, "width": of.width, "objects": of.objects}


def _range(of: Any) -> dict[str, int]:
    return {"expected": int(of.expected), "low": int(of.low), "high": int(of.high)}
