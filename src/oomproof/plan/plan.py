"""The answer to «make it fit», as data: what changes, why, and what it was chosen over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from oomproof.memory.cards.devices import Device
from oomproof.memory.forecast import Forecast
from oomproof.sources.job import PROMISES, Settings


@dataclass(frozen=True)
class Change:
    """One knob that was turned. ``frees`` and ``time`` are its own share, after the changes listed before it."""

    knob: str
    before: Any
    after: Any
    promise: str
    why: str
    frees: int
    """bytes of device memory, expected; what another change has freed already is not counted twice"""
    time: float
    """time per image as a factor of what it was without this change: 1.25 is a quarter more"""
    settings: Mapping[str, Any]
    """what it sets, in the job's own names"""
    frees_host: int = 0
    """bytes of host RAM, at the upper figure, where it is turned for these"""


@dataclass(frozen=True)
class Alternative:
    """Another way that was looked at and turned down."""

    changes: str
    """in words: «batch 4 x 4, precision bf16»"""
    promise: str
    device: int
    """bytes on the device at the upper figure; estimated, unless it was traced in full"""
    time: float
    """time per image, as a factor of the job as it was"""
    reason: str
    """why it was turned down"""


@dataclass(frozen=True)
class Point:
    """A place on the frontier: no setting that was looked at needs less memory and less time."""

    device: int
    """bytes on the device at the upper figure; estimated, unless the plan or another full trace has shown it"""
    time: float
    """time per image, as a factor of the job as it was"""
    promise: str
    changes: str
    chosen: bool = False


@dataclass(frozen=True)
class Attempt:
    """One thing that the search tried, and what came of it."""

    tried: str
    """in words: «batch 4 x 4, precision bf16»"""
    how: Literal["few images", "full trace", "estimate"]
    """traced with few images, to estimate from it; traced in full; or not traced at all"""
    outcome: str
    """of a full trace ``fits``, ``at risk`` or ``does not fit``; else ``traced``, ``cannot run`` or ``nothing fits``"""
    reason: str
    """why it was taken, or passed over"""
    device_estimated: int | None = None
    """bytes on the device at the upper figure, before the full trace"""
    device: int | None = None
    """and after it"""
    time_estimated: float | None = None
    """time per image, as a factor of the job as it was"""
    time: float | None = None


@dataclass(frozen=True)
class Plan:
    """Settings for a budget. Where nothing fits, they are the nearest miss, and ``needs`` says what would help."""

    job: str
    device: Device
    settings: Settings
    changes: tuple[Change, ...]
    before: Forecast
    """of a full trace too, unless ``before_estimated``"""
    after: Forecast
    """of a full trace under ``settings``"""
    time: float
    """time per image, as a factor of the job as it was: an estimate from the operations that were traced"""
    alternatives: tuple[Alternative, ...] = ()
    frontier: tuple[Point, ...] = ()
    needs: tuple[str, ...] = ()
    """where nothing fits: what would have to be allowed, in words and options"""
    before_estimated: bool = False
    """a step with this many boxes takes long to trace: ``before`` is worked out from few images"""
    interrupted: bool = False
    """the search was stopped: the best so far, not the best there is"""
    own: tuple[str, ...] = ()
    """settings that belong to the user's code, whatever their names"""
    attempts: tuple[Attempt, ...] = ()
    """what the search tried, in order"""
    traces: int = 0
    seconds: float = 0.0

    @property
    def fits(self) -> bool:
        return self.after.fits

    @property
    def promise(self) -> str:
        """The weakest promise among the changes."""
        return max((change.promise for change in self.changes), key=PROMISES.index, default=PROMISES[0])

    def apply(self, model: Any) -> Any:
        """A compiled Keras model with the plan's changes. (PyTorch trains with ``oomproof.Step(..., plan)``.)"""
        from oomproof.changes.keras.applying import apply

        return apply(model, self)

    def batches(self, dataset: Any) -> Any:
        """A batched tf.data.Dataset in the plan's micro-batches."""
        from oomproof.changes.keras.batches import batches

        return batches(dataset, self)
