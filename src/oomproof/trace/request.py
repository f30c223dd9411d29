"""What a trace is asked for: one object that goes from the caller to the tracer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from oomproof.errors import InputError, JobError
from oomproof.memory.batch_spec import BatchSpec
from oomproof.memory.cards.devices import Device
from oomproof.memory.settings import Settings
from oomproof.memory.validation import Validation

Progress = Callable[[str], None]
"""called with what is being done now, in a few words"""


def be_silent(text: str) -> None:
    """A Progress that nobody hears."""


@dataclass(frozen=True)
class TraceRequest:
    """One steady training step of a job under ``settings`` (every setting has a value)."""

    settings: Settings
    device: Device | None = None
    """for steps that a compiler lays out; the Timelines of others hold for every device"""
    patience: int | None = None
    """how many values the step may ask for (TooManyValues otherwise); None: any number. Values (which boxes overlap,
    which anchors match) have to be computed, image by image, so that many of them take long"""
    batch: BatchSpec | None = None
    """the images of the step, where others are meant than the settings have"""
    validation: Validation | None = None
    """the part of the run that is meant: how it validates, not how it trains"""
    sparse: bool = False
    """what the step takes at least is meant: detectors find no more than the annotated objects, in validation none"""
    progress: Progress = be_silent

    def __post_init__(self) -> None:
        if not isinstance(self.settings, Settings):  # a plain dict will do where no setting plays a role
            object.__setattr__(self, "settings", Settings(self.settings))

    def refuse_batch(self, job: str) -> None:
        """For jobs that make their batches themselves."""
        if self.batch is not None:
            raise InputError(f"{job} makes its batches itself: leave them to it, and set its own settings")

    def without_known_objects(self, settings: Settings) -> Settings:
        """For notes on what was assumed: the settings, with no objects where the batch has its own."""
        name = settings.name_of("boxes")
        return settings if self.batch is None or not name else settings.with_values({name: 0})

    def refuse_validation(self, job: str) -> None:
        """For jobs that say nothing of how they validate."""
        if self.validation is not None:
            raise InputError(
                f"{job} does not say how it validates: leave out --validate, or give the job as FILE.py:FUNCTION with "
                "TorchJob(validate=...) (docs/jobs.md)"
            )

    def with_settings(self, settings: Settings) -> TraceRequest:
        """The same request under other settings."""
        return replace(self, settings=settings)


class TooManyValues(JobError):
    """The step was given up: it asks for more values than the request has patience for."""


def count_values(asked: Mapping[str, int]) -> int:
    """How often more than a single number was asked for. Single numbers (an optimizer's count of steps, a loss) are
    asked for once, however many images there are, or cost nothing."""
    return sum(count for name, count in asked.items() if name != "_local_scalar_dense")


def check_patience(asked: Mapping[str, int], patience: int | None) -> None:
    """Raises TooManyValues where a step has asked for more than it may."""
    if patience is not None and count_values(asked) > patience:
        raise TooManyValues(f"the step asks for more than {patience} values: trace it with fewer images")
