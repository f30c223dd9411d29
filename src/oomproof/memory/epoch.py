"""What an epoch of a dataset brings, as data: its worst batch, its typical one, how likely one is that does not fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from oomproof.memory.batch_spec import BatchSpec

if TYPE_CHECKING:
    from oomproof.memory.forecast import Range

Size = tuple[int, int]


@dataclass(frozen=True)
class Batch:
    """A batch of the dataset, with what it needs."""

    spec: BatchSpec
    padded: Size
    """height and width that its images are padded to"""
    allocated: Range
    on_device: Range
    outcome: str
    """``fits``, ``at risk`` or ``does not fit``, on the device"""


@dataclass(frozen=True)
class Remedy:
    """A change of the data after which no batch should be over the budget; by the model of memory, not traced."""

    kind: str
    """``drop`` images, ``crop`` them until they have fewer objects, or ``resize`` all of them"""
    limit: int
    """images to drop; objects that an image may keep; pixels of the shorter side, or of each side of a fixed size"""
    images: tuple[str, ...]
    """those concerned, the worst first; the first few where they are many"""
    count: int
    """how many are concerned"""


@dataclass(frozen=True)
class Epoch:
    """The step that was forecast is the worst batch's."""

    data: str
    images: int
    batches: int
    rule: str
    """how the training resizes, pads and groups"""
    exact: bool
    """False: the batches are an upper bound of what the training can make"""
    worst: Batch
    typical: Batch
    chance: float
    """that an epoch has a batch which does not fit, or is at risk: whatever the worst one is"""
    chance_is_bound: bool
    """no such batch was drawn: the chance is below this"""
    remedies: tuple[Remedy, ...]
    traces: int
    left_out: int
    """images that are not trained on, since they have no objects"""
    samples: tuple[tuple[int, int], ...] = ()
    """batches drawn by chance, for a picture: objects, and the bytes allocated by the model of memory"""
    padded_objects: bool = False
    """objects are those that ground truth is padded to, whatever an image holds"""
