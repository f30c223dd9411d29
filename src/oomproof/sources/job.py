"""What every source makes: a Job that knows its settings and can be traced with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from oomproof.memory.timeline import Timeline

Progress = Callable[[str], None]
"""Called with what the job is doing now, in a few words."""

Settings = Mapping[str, Any]


@dataclass(frozen=True)
class Setting:
    """One thing about a job that may be set: ``--set NAME=VALUE``."""

    name: str
    default: Any
    help: str
    choices: tuple[str, ...] = ()


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
