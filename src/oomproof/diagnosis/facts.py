"""What a log says, as data: failures with their numbers, how far the training was, what it was set to.

Every reader of a message family makes a Failure; everything behind works on these and never on text again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass(frozen=True)
class Line:
    """One line of the log, cleaned; ``rank`` is the process that printed it, where a prefix tells."""

    number: int
    text: str
    rank: str = ""


@dataclass(frozen=True)
class Frame:
    """One entry of a Python traceback."""

    file: str
    line: int
    name: str
    code: str = ""

    @property
    def place(self) -> str:
        return f"{self.file.replace(chr(92), '/').rsplit('/', 1)[-1]}:{self.line} {self.name}"


@dataclass(frozen=True)
class Failure:
    """One message about memory. None: the message does not say."""

    family: str
    """the reader that made it: cuda, cpu, mps, tensorflow, handle, xla, loader, kernel, exit, array, cluster"""
    kind: str
    """what it is within its family"""
    where: str
    """whose memory ran out: device, host, shm"""
    line: int
    quote: str
    at: int = 0
    """place among the lines that were read"""
    fatal: bool = True
    """False: a retry, a warning, a failure that the program caught"""
    requested: int | None = None
    total: int | None = None
    free: int | None = None
    allocated: int | None = None
    reserved: int | None = None
    process: int | None = None
    """all that this process holds, CUDA context included"""
    others: tuple[tuple[int, int], ...] = ()
    """(process id, bytes) of other processes on the device"""
    limit: int | None = None
    """a cap below the device's or the machine's size"""
    largest_free: int | None = None
    """the largest free piece that the allocator had"""
    swap_free: int | None = None
    device: str = ""
    shape: tuple[int, ...] = ()
    dtype: str = ""
    op: str = ""
    frames: tuple[Frame, ...] = ()
    rank: str = ""
    exit_code: int | None = None
    victim: str = ""
    """the program that was killed"""
    helpers: tuple[int, int] = (0, 0)
    """processes of the same name that were running beside the killed one, and their bytes"""
    pieces: tuple[tuple[int, str], ...] = ()
    """(bytes, what) of the largest buffers the message lists"""

    @property
    def idle(self) -> int | None:
        """Reserved by the framework's allocator, but not in use."""
        if self.reserved is None or self.allocated is None:
            return None
        return max(0, self.reserved - self.allocated)


@dataclass(frozen=True)
class ProgressLine:
    """One line that tells how far the run is."""

    at: int
    line: int
    doing: str
    """train, eval, cache, shuffle, resume, load, save, done"""
    epoch: int | None = None
    step: int | None = None
    text: str = ""
    epochs: int | None = None
    """how many epochs there are to be, where the line says"""


class ColumnReading(NamedTuple):
    """One figure of a memory column."""

    line: int
    size: int
    phase: str = "train"
    """train or eval: what the run was doing"""


@dataclass(frozen=True)
class Trend:
    """A memory column over the run, in order: bytes, or thousandths of a percent."""

    name: str
    where: str
    """device, host, or empty where the name does not tell"""
    points: tuple[ColumnReading, ...]
    maximum: bool = False
    """whether the column shows the most so far, not what is in use now"""
    percent: bool = False
    left: bool = False
    """whether the column shows what is free, and falls where memory grows"""


@dataclass(frozen=True)
class Setup:
    """What the log shows of how the training was set up; empty where it does not."""

    framework: str = ""
    batch: int | None = None
    batches: tuple[tuple[int, int], ...] = ()
    """(line, batch) wherever another batch is named than before"""
    epochs: int | None = None
    workers: int | None = None
    gpu: str = ""
    card: int | None = None
    """bytes of the GPU that the log names"""
    pool: int | None = None
    """bytes that TensorFlow said it took at its start"""
    free_at_start: int | None = None
    in_use: tuple[tuple[int, int, int], ...] = ()
    """(line, bytes in use, bytes of the card) wherever nvidia-smi's table stands in the log"""
    found: Mapping[str, str] = field(default_factory=dict)
    """name -> the line that shows it: benchmark, multiscale, cap, eval_job, generator, cache, kubernetes, slurm,
    batch_option"""


@dataclass(frozen=True)
class Facts:
    """All that was read out of one log."""

    failures: tuple[Failure, ...] = ()
    main: Failure | None = None
    """the failure that ended the run, with the most numbers"""
    again: int = 0
    """how often the same request was refused"""
    progress: tuple[ProgressLine, ...] = ()
    trends: tuple[Trend, ...] = ()
    setup: Setup = Setup()
    largest_tensor: int = 0
    """bytes of the largest tensor whose shape the program printed before the failure; 0 where it printed none"""
    errors: tuple[Failure, ...] = ()
    """errors that have nothing to do with memory"""
    notes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """warnings worth knowing, by name: retracing, on_cpu ..., each as quoted lines"""
    lines: int = 0
    size: int = 0
    """bytes of the log"""
    cut: bool = False
    """whether only parts of a long log were kept"""

    def before(self, failure: Failure) -> tuple[ProgressLine, ...]:
        # `Killed` stands behind the bar that was being drawn, on one line with it.
        end = failure.at + (1 if failure.family == "exit" else 0)
        return tuple(each for each in self.progress if each.at < end)

    def after(self, failure: Failure) -> tuple[ProgressLine, ...]:
        return tuple(each for each in self.progress if each.at > failure.at)
