"""A batch as a specification: how large each image is, and how many objects are marked in it.

>>> spec = make_up(2, (800, 1333), 93)
>>> len(spec.images), spec.objects, spec.origin
(2, 186, 'made up')
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MOST_OBJECTS = 93
"""in the most crowded training image of COCO; every source takes it where nothing is known of the data"""

OTHER_OBJECTS = (20, 200)
"""in an image of an ordinary dataset and of a crowded one: what a page offers beside"""

OBJECTS_HELP = f"annotated objects in every image; {MOST_OBJECTS} is the most that an image of COCO has"


@dataclass(frozen=True)
class ImageSpec:
    """One image as the data loader hands it on."""

    height: int
    width: int
    objects: int
    name: str = ""
    """of the image in its dataset; empty where it is made up"""


@dataclass(frozen=True)
class BatchSpec:
    """The images of one step on one device."""

    images: tuple[ImageSpec, ...]
    origin: str = "made up"
    """where the figures come from, for reports"""

    @property
    def objects(self) -> int:
        return sum(image.objects for image in self.images)

    @property
    def most_crowded_first(self) -> tuple[ImageSpec, ...]:
        """for people to read; a step has them the other way round"""
        return tuple(sorted(self.images, key=lambda image: (-image.objects, -image.height * image.width)))


def make_up(images: int, size: Sequence[int], objects: int) -> BatchSpec:
    """A batch of equal images, where nothing is known of the data."""
    height, width = size
    return BatchSpec((ImageSpec(height, width, objects),) * images)


def note_on_objects(objects: int) -> list[str]:
    """What a report says of the default; nothing once the user has said how many there are."""
    if objects != MOST_OBJECTS:
        return []
    return [f"{MOST_OBJECTS} objects in every image, as in COCO's most crowded; --set boxes=N for your data"]
