"""Micro-batches: the one knob that every training has, and when they give the same gradients."""

from __future__ import annotations

import math

from oomproof.memory.about import About
from oomproof.sources.job import Knob, Option, Settings

_GAP = 2
"""how many times smaller the next size may be, before sizes are tried that do not divide the batch"""
_FEW = 8
_FEW_NOTE = "BatchNorm over so few images trains worse: ImageNet error 24.8 % with 8, 27.3 % with 4, 34.7 % with 2"
"""of ResNet-50, against 23.6 % with 32 images: Wu and He, Group Normalization, 2018, table 2"""
_ALONE = "BatchNorm over one image is another normalisation, that of an image by itself"


def micro_batch(
    settings: Settings, about: About, *, mean_over_images: bool, by: str = "", exactly: str = "", uneven: bool = False
) -> Knob | None:
    """``by``: what accumulates; ``exactly``: what more must hold of a loss that is a mean over images; ``uneven``: the
    step weighs micro-batches by their images, so that they need not be alike."""
    name = settings.name_of("batch")
    if not name or "accumulate" not in settings or settings[name] < 2:
        return None
    whole, already = settings[name], settings["accumulate"]
    options = []
    for size in _sizes(whole, already, uneven):
        count = math.ceil(already * whole / size)
        smallest = already * whole // count
        if about.batchnorms and smallest == 1 < size:
            continue  # an image left over would be normalised by itself, which some networks cannot do at all
        alone = bool(about.batchnorms) and size == 1
        few = bool(about.batchnorms) and smallest < min(_FEW, whole)
        note, promise = (_ALONE, "different") if alone else (_FEW_NOTE if few else "", "")
        words = describe_cut(already * whole, count)
        options.append(Option(words, {name: size, "accumulate": count}, note=note, promise=promise))
    same = f"same effective batch{by and f' by {by}'}"
    if about.batchnorms:
        promise, why = "equivalent", f"{same}; BatchNorm takes its statistics from fewer images"
    elif not mean_over_images:
        promise, why = "equivalent", f"{same}; the loss may be divided by counts of the whole batch"
    elif not about.separable:
        promise, why = "equivalent", f"{same}; random draws fall on other images"
    else:
        promise, why = "identical", f"{same}: the loss is a mean over images{exactly and f' ({exactly})'}"
    return Knob(name, tuple(options), promise, why, role="batch")


def _sizes(whole: int, already: int, uneven: bool) -> list[int]:
    """Images of the largest micro-batch, from all down to one: sizes that divide the batch, and others where these
    are far apart."""
    even = [size for size in range(whole, 0, -1) if whole % size == 0]
    if not uneven:
        return even
    total, found = whole * already, list[int]()
    for size, smaller in zip(even, [*even[1:], 0], strict=True):
        found.append(size)
        if smaller * _GAP < size and smaller:
            # Of the sizes between, those that some number of micro-batches really has.
            between = range(size - 1, smaller, -1)
            found += [each for each in between if math.ceil(total / math.ceil(total / each)) == each]
    return found


def describe_cut(images: int, count: int) -> str | int:
    """«8 x 2»; «4 + 3 x 3» where the images of a batch cannot be cut into equal parts."""
    if count == 1:
        return images
    small, larger = divmod(images, count)
    if not larger:
        return f"{small} x {count}"
    parts = ((small + 1, larger), (small, count - larger))
    return " + ".join(f"{size} x {times}" if times > 1 else str(size) for size, times in parts)
