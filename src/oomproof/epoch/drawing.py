"""Epochs drawn by chance: what their batches need, by the model of memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from oomproof.epoch.features import batch_features
from oomproof.epoch.images import Images
from oomproof.epoch.memory_model import MemoryModel
from oomproof.memory.batch_rule import Integers

BATCHES = 120_000
"""drawn in all, as far as that takes no more than EPOCHS: a chance of 1 in 1000 batches then comes out within 10 %"""
EPOCHS = 4000
SAMPLES = 400
MANY = 50
"""epochs from which on those with such a batch are simply counted"""


@dataclass(frozen=True, eq=False)
class Drawn:
    needs: np.ndarray
    """bytes of every batch drawn, a row an epoch"""
    typical: tuple[int, ...]
    """the batch in the middle of the first epoch"""
    sides: Integers | None
    """what the shorter sides were drawn to be then, where there is a choice"""
    samples: tuple[tuple[int, int], ...]
    """some of its batches: objects, and bytes"""

    @property
    def batches(self) -> int:
        """In an epoch."""
        return int(self.needs.shape[1])

    def chance_above(self, limit: float) -> tuple[float, bool]:
        """That an epoch has a batch that needs more than ``limit`` bytes; and whether that is only a bound, since none
        was drawn."""
        over = self.needs > limit
        if not over.any():
            return min(1.0, 1 / len(self.needs)), True
        if len(over) >= MANY:
            return float(over.any(axis=1).mean()), False
        return float(1 - (1 - over.mean()) ** self.batches), False  # an epoch is so long that batches hardly depend


def draw_epochs(images: Images, model: MemoryModel, count: int) -> Drawn:
    chance = np.random.default_rng(0)
    rows: list[np.ndarray] = []
    first = None
    while len(rows) < EPOCHS and sum(len(row) for row in rows) < BATCHES:
        batches, sides = _draw(images, count, chance)
        heights, widths = images.sizes if sides is None else images.sizes_at(sides)
        needs = model.predict(batch_features(images, heights, widths, batches))
        if first is None:
            middle = int(np.argsort(needs, kind="stable")[len(needs) // 2])
            objects = images.objects[batches].sum(axis=1)
            samples = tuple((int(many), int(need)) for many, need in zip(objects, needs, strict=True))[:SAMPLES]
            first = tuple(sorted(batches[middle].tolist())), sides, samples
        rows.append(needs)
    assert first is not None
    return Drawn(np.stack(rows), *first)


def _draw(images: Images, count: int, chance: np.random.Generator) -> tuple[Integers, Integers | None]:
    """One epoch's whole batches, and the sides of its images."""
    choices = images.rule.sides
    sides = chance.choice(np.array(choices), len(images)) if len(choices) > 1 else None
    batches = list(_batches(images, count, chance))
    if not batches:  # no group fills a batch: its images with what comes round again
        return chance.permutation(len(images))[None, :count], sides
    return np.concatenate(batches), sides


def _batches(images: Images, count: int, chance: np.random.Generator) -> Iterator[Integers]:
    for number in np.unique(images.groups):
        members = chance.permutation(np.flatnonzero(images.groups == number))
        whole = len(members) // count * count
        if whole:
            yield members[:whole].reshape(-1, count)
