"""What every source makes: a Job that knows its settings and its knobs, can be traced and can be written back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from oomproof.memory.timeline import Timeline

Progress = Callable[[str], None]
"""Called with what the job is doing now, in a few words."""

Settings = Mapping[str, Any]

PROMISES = ("identical", "equivalent", "different")
"""What a change leaves of the training, the strictest first: the same gradients (proved by a test); the same in
expectation or up to rounding; another training."""


BATCH_NAMES = ("batch", "batch_size", "images_per_gpu", "bs", "SOLVER.IMS_PER_BATCH")
"""what people call the number of images in a step"""


@dataclass(frozen=True)
class Setting:
    """One thing about a job that may be set: ``--set NAME=VALUE``."""

    name: str
    default: Any
    help: str
    choices: tuple[str, ...] = ()
    read: Callable[[Any], Any] | None = None
    """makes a value of what was given, where the default's type does not say how"""
    follows: Callable[[Settings], Any] | None = None
    """works out the value from the other settings, where none is given"""
    own: bool = False
    """a parameter of the user's code: it means what the code means by it, even if every training has one of its name"""


@dataclass(frozen=True)
class Option:
    """One position of a knob: its value as a person would say it, and what it sets."""

    value: Any
    settings: Settings
    harm: float = 0.0
    """orders options that make another training: 0 is none, 1 is as bad as it gets"""
    note: str = ""
    """what is known of its effect, such as a published AP"""
    promise: str = ""
    """where it is another than the knob's"""


@dataclass(frozen=True)
class Knob:
    """One thing that may change for the sake of memory, under the user's own name for it."""

    name: str
    options: tuple[Option, ...]
    """the present one first, the thriftiest last"""
    promise: str
    why: str
    """what the promise rests on, or what the knob costs, in a phrase"""
    host: bool = False
    """saves host RAM alone: turned where it is known how much there is"""


def sharing(settings: Settings) -> int:
    """How many GPUs share the batch that the settings name: 1 where it is that of one GPU, as it mostly is."""
    return int(settings.get("SOLVER.REFERENCE_WORLD_SIZE") or settings.get("gpus") or 1)


def batch_name(settings: Settings) -> str:
    """The setting that says how many images a step takes; empty where the job has none."""
    return next((name for name in BATCH_NAMES if isinstance(settings.get(name), int)), "")


class Job(Protocol):
    """One training job as its framework would run it."""

    @property
    def name(self) -> str: ...

    @property
    def settings(self) -> tuple[Setting, ...]:
        """What may be set, with the job's own values as defaults."""
        ...

    def trace(self, settings: Settings, progress: Progress) -> Timeline:
        """One steady training step under ``settings`` (every setting has a value), as a Timeline."""
        ...

    def knobs(self, settings: Settings, facts: Mapping[str, Any]) -> tuple[Knob, ...]:
        """What may change to save memory, from ``settings`` on. ``facts`` is what a trace of the job found (the
        Timeline's ``about``): whether batch normalisation trains, for instance."""
        ...

    @property
    def place(self) -> Path:
        """The file that ``write`` makes or edits where no target is named; raises InputError where nothing can be
        written."""
        ...

    def write(self, settings: Settings, target: Path | None, *, device: str = "", changes: Sequence[str] = ()) -> str:
        """Puts settings where the job came from, or into ``target``; returns what the user should do with it.
        ``device`` and ``changes`` say in words what they were made for, where there is a place for that."""
        ...


@runtime_checkable
class ReadsData(Protocol):
    """A job that knows what its data keep in host RAM, without a trace."""

    def data_by(self, settings: Settings) -> Callable[[Settings], Mapping[str, Any]]:
        """For the job under ``settings``: from other sizes of its data to what a trace would say of them in a
        Timeline's ``about``."""
        ...
