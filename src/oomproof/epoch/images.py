"""A dataset's images as a training sees them: columns of sizes and objects, under the job's rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from oomproof.data.annotations.dataset import Dataset
from oomproof.errors import InputError
from oomproof.memory.batch_rule import BatchRule, Integers, group, resize
from oomproof.memory.batch_spec import BatchSpec, ImageSpec


@dataclass(frozen=True, eq=False)
class Images:
    """One row an image. Sizes are the largest that the rule can make of it."""

    rule: BatchRule
    names: tuple[str, ...]
    stored_heights: Integers
    stored_widths: Integers
    objects: Integers
    groups: Integers
    left_out: int = 0
    """images without objects that the training drops"""

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def sizes(self) -> tuple[Integers, Integers]:
        """Heights and widths after resizing, at the largest."""
        return self.sizes_at(max(self.rule.sides, default=0))

    def sizes_at(self, side: int | Integers) -> tuple[Integers, Integers]:
        """Heights and widths where the shorter side becomes ``side`` (one, or one for each image)."""
        return resize(self.rule, self.stored_heights, self.stored_widths, side)

    def at(self, places: Integers) -> Images:
        """Some of the images."""
        return replace(
            self,
            names=tuple(self.names[place] for place in places),
            stored_heights=self.stored_heights[places],
            stored_widths=self.stored_widths[places],
            objects=self.objects[places],
            groups=self.groups[places],
        )

    def spec(self, places: Sequence[int], sides: Integers | None = None) -> BatchSpec:
        """These images as a job takes them; ``sides``: what each image's shorter side was drawn to be. What is done
        image by image needs the most where the most crowded come last, on top of what the others have left."""
        resized = self.sizes if sides is None else self.sizes_at(sides)
        areas = resized[0] * resized[1]
        heights, widths = (self.stored_heights, self.stored_widths) if self.rule.by_network else resized
        return BatchSpec(
            tuple(
                ImageSpec(int(heights[at]), int(widths[at]), int(self.objects[at]), self.names[at])
                for at in sorted(places, key=lambda place: (self.objects[place], areas[place], place))
            ),
            "the data",
        )


def see_images(dataset: Dataset, rule: BatchRule) -> Images:
    """What is trained on: crowds (one box for many objects) are left out as torchvision and Detectron2 do it, unless
    the rule has them."""
    heights = np.where(dataset.turned, dataset.widths, dataset.heights).astype(np.int64)
    widths = np.where(dataset.turned, dataset.heights, dataset.widths).astype(np.int64)
    counted = np.ones_like(dataset.crowd) if rule.crowds else ~dataset.crowd
    single = np.concatenate([[0], np.cumsum(counted, dtype=np.int64)])
    objects = single[dataset.first[1:]] - single[dataset.first[:-1]]
    if rule.most_objects:
        objects = (
            np.full_like(objects, rule.most_objects) if rule.padded_objects else objects.clip(0, rule.most_objects)
        )
    kept = np.flatnonzero(objects > 0) if not rule.empty else np.arange(len(dataset))
    if rule.repeats and 0 < len(kept) < rule.images:
        kept = np.resize(kept, rule.images)
    if not len(kept):
        raise InputError(f"{dataset.path}: none of its {len(dataset)} images has an object to train on")
    return Images(
        rule,
        tuple(dataset.names[place] for place in kept),
        heights[kept],
        widths[kept],
        objects[kept].astype(np.int64),
        group(rule, heights[kept], widths[kept]),
        max(0, len(dataset) - len(kept)),
    )
