"""What a Timeline means on a device, as data: allocated, reserved and device memory, each as a range, and the verdict.

memory/make_forecast.py works it out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from oomproof.memory.cards.devices import Device
from oomproof.memory.curve import Curve
from oomproof.memory.epoch import Epoch
from oomproof.memory.settings import Settings

OUTCOMES = ("fits", "at risk", "does not fit")


@dataclass(frozen=True)
class Range:
    """Bytes: the expected value, and the bounds it should stay between."""

    expected: int
    low: int
    high: int


@dataclass(frozen=True)
class Seconds:
    """The expected value, and the bounds it should stay between."""

    expected: float
    low: float
    high: float


@dataclass(frozen=True)
class Shortage:
    """The allocation at which the budget runs out."""

    requested: int
    phase: str
    owner: str
    op: str


@dataclass(frozen=True)
class Hint:
    """One change that would help a step that does not fit."""

    knob: str
    settings: Mapping[str, Any]
    """what it sets; empty: a plan has to work that out"""
    saves: int | None
    """bytes of the upper figure, by estimate; None: that would take another trace"""
    promise: str
    """``identical``, ``equivalent`` or ``different``: what it leaves of the training"""
    why: str
    at_most: bool = False
    """``saves`` is a bound"""


@dataclass(frozen=True)
class Forecast:
    """The answer to «will it fit?». Levels are never mixed: allocated <= reserved <= on_device."""

    job: str
    settings: Settings
    device: Device
    allocated: Range
    """live blocks, as torch.cuda.max_memory_allocated or TensorFlow's get_memory_info counts them"""
    reserved: Range
    """what the framework's allocator holds, as torch.cuda.max_memory_reserved counts it"""
    on_device: Range
    """what nvidia-smi shows for the process: reserved and the CUDA context"""
    host: Range
    """RAM of the training process and its data workers"""
    shm: int
    """bytes of /dev/shm that batches on their way from the workers take"""
    kinds: Mapping[str, int]
    """bytes by kind at the peak; they add up to allocated.expected"""
    owners: tuple[tuple[str, int], ...]
    """modules that hold the most at the peak, largest first"""
    phase: str
    owner: str
    op: str
    """the moment of the peak"""
    phases: Mapping[str, int] = field(default_factory=dict)
    """the most that is live in each phase"""
    shortage: Shortage | None = None
    """where the budget runs out at the expected figures (None: it does not)"""
    shortage_at_worst: Shortage | None = None
    """where it runs out at the upper figures"""
    not_counted: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """what a reader should know about the job: settings that do nothing, what was assumed"""
    batches_seen: str = ""
    """of a script: the batches that its own loader gave, of which the largest was traced"""
    unseen: tuple[str, ...] = ()
    """of a script: what may need more later and was not seen"""
    read_by: tuple[str, str] = ("max_memory_allocated", "max_memory_reserved")
    """what the framework itself calls ``allocated`` and ``reserved``"""
    curve: Curve | None = field(default=None, repr=False, compare=False)
    """live memory over the step, kind by kind"""
    modules: Mapping[str, int] = field(default_factory=dict, repr=False, compare=False)
    """bytes at the peak by module, every one of them; ``owners`` has them as stages"""
    wanted: int = 0
    """bytes on the device at the upper figures where nothing has to be given back; on_device.high has it given back"""
    gives_back: bool = False
    """at the upper figures the step gets through only if the allocator gives cached blocks back, step after step"""
    less_workspace: bool = False
    """at the upper figures the step gets through only if cuDNN takes smaller workspaces than it would like"""
    room: int | None = None
    """the most that the framework lets its allocator hold, where that is less than what is free on the device"""
    host_parts: Mapping[str, Range] = field(default_factory=dict)
    """what takes the host's RAM, part by part; they add up to ``host``"""
    ram: int | None = None
    """bytes of host RAM that the job may take; None: nobody said"""
    shm_limit: int | None = None
    """bytes that /dev/shm can hold; None: nobody said"""
    validation: Forecast | None = None
    """the part of the run between epochs; None: not looked at"""

    after_training: Range | None = None
    """of a validation: what nvidia-smi shows when it follows training in the same process, whose freed memory PyTorch
    keeps; None: not looked at"""

    step_seconds: Seconds | None = None
    """how long a step should take; None where the card's speed or the step's work is not known"""
    epoch: Epoch | None = None
    """where a dataset was given: its batches, of which this is the worst"""
    hints: tuple[Hint, ...] = ()
    """where the device is too small: what would help, the surest first"""

    @property
    def budget(self) -> int:
        return self.device.budget

    @property
    def context(self) -> int:
        """What the process holds on the device outside the allocator, as expected."""
        return self.on_device.expected - self.reserved.expected

    @property
    def excess(self) -> int:
        """Bytes by which the upper figures miss the budget before anything is given back; below 0: bytes that stay free
        even at worst."""
        above = max(self.wanted, self.on_device.high) - self.budget
        return above if self.room is None else max(above, self.reserved.high - self.room)

    @property
    def fits(self) -> bool:
        return self.outcome == OUTCOMES[0]

    @property
    def outcome(self) -> str:
        """``fits``, ``at risk`` or ``does not fit``: the worst of training, validation, host RAM and /dev/shm. What
        fits has every upper figure within its budget."""
        parts = (self.on_device_outcome, self.validation_outcome, self.host_outcome, self.shm_outcome)
        return max(parts, key=OUTCOMES.index)

    @property
    def decides(self) -> Literal["training", "validation"]:
        """The part of the run that the device is too small for, else that needs the most of it."""
        other = self.validation
        if other is None:
            return "training"
        worse = OUTCOMES.index(other.on_device_outcome) - OUTCOMES.index(self.on_device_outcome)
        return "validation" if (worse or other.on_device.high - self.on_device.high) > 0 else "training"

    @property
    def validation_outcome(self) -> str:
        return OUTCOMES[0] if self.validation is None else self.validation.on_device_outcome

    @property
    def shm_outcome(self) -> str:
        return OUTCOMES[0] if self.shm_limit is None or self.shm <= self.shm_limit else OUTCOMES[2]

    @property
    def on_device_outcome(self) -> str:
        if self.shortage is not None:
            return OUTCOMES[2]
        within = self.shortage_at_worst is None and self.on_device.high <= self.budget
        return OUTCOMES[0] if within else OUTCOMES[1]

    @property
    def host_outcome(self) -> str:
        if self.ram is None or self.host.high <= self.ram:
            return OUTCOMES[0]
        return OUTCOMES[1] if self.host.expected <= self.ram else OUTCOMES[2]
