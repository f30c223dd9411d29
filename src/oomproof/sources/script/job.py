"""A training script as a job: its process is followed, and what it does on the GPU becomes a Timeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from oomproof.memory.about import About
from oomproof.memory.settings import Settings
from oomproof.memory.timeline import Timeline
from oomproof.sources.job import Job, Setting, TraceRequest
from oomproof.sources.script.command import Command
from oomproof.sources.script.running import Run, run_script
from oomproof.sources.settings import runtime_settings

PATIENCE = 300
"""seconds; a script's own start, its data set and two steps"""


@dataclass(frozen=True)
class ScriptJob(Job):
    """``found`` is what the last trace saw of how the script runs: workers, cudnn.benchmark."""

    command: Command
    found: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.command.name

    @property
    def settings(self) -> tuple[Setting, ...]:
        return (
            Setting("patience", PATIENCE, "seconds that the script may take to its second step"),
            Setting("validate", False, "go on to the end of the first validation, and count it"),
            *runtime_settings(self.found),
        )

    def trace(self, request: TraceRequest) -> Timeline:
        request.refuse_batch(self.name)
        timeline = run_script(
            Run(
                self.command,
                device=request.device,
                patience=request.settings["patience"],
                validate=request.settings["validate"],
            ),
            request.progress,
        )
        self.found.clear()
        self.found.update(timeline.about.settings)
        return replace(timeline, about=_told(timeline.about, self.name, request.settings))


def _told(about: About, name: str, settings: Mapping[str, Any]) -> About:
    return replace(about, job=name, settings=Settings({**settings, **about.settings}))
