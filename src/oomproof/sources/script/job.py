"""A training script as a job: its process is followed, and what it does on the GPU becomes a Timeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from oomproof.errors import InputError
from oomproof.memory.about import About
from oomproof.memory.settings import Settings
from oomproof.memory.timeline import Timeline
from oomproof.sources.job import Job, Knob, Setting, TraceRequest
from oomproof.sources.script.command import Command
from oomproof.sources.script.options import Found, find_options, option_knobs, set_options
from oomproof.sources.script.running import Run, run_script
from oomproof.sources.settings import runtime_settings

PATIENCE = 300
"""seconds; a script's own start, its data set and two steps"""
_HOW = ("patience", "validate")


@dataclass
class Seen:
    """What runs of the script have shown."""

    runtime: dict[str, Any] = field(default_factory=dict)
    """workers, cudnn.benchmark"""
    options: tuple[Found, ...] = ()
    steps: dict[tuple[Any, ...], Timeline] = field(default_factory=dict)
    """by its arguments: a plan asks for the same more than once"""


@dataclass(frozen=True)
class ScriptJob(Job):
    command: Command
    seen: Seen = field(default_factory=Seen)

    @property
    def name(self) -> str:
        return self.command.name

    @property
    def settings(self) -> tuple[Setting, ...]:
        return (
            Setting("patience", PATIENCE, "seconds that the script may take to its second step"),
            Setting("validate", False, "go on to the end of the first validation, and count it"),
            *(each.as_setting() for each in self.seen.options),
            *runtime_settings(self.seen.runtime),
        )

    def trace(self, request: TraceRequest) -> Timeline:
        request.refuse_batch(self.name)
        settings = request.settings
        command = self.with_settings(settings)
        key = (command.arguments, *(settings[name] for name in _HOW))
        if key not in self.seen.steps:
            run = Run(command, device=request.device, patience=settings["patience"], validate=settings["validate"])
            timeline = run_script(run, request.progress)
            self.seen.steps[key] = timeline
            if command == self.command:
                self.seen.runtime.update(timeline.about.settings)
                self.seen.options = find_options(timeline.about.details.get("options", ()))
        timeline = self.seen.steps[key]
        told = _told(timeline.about, self.name, settings)
        if command != self.command:
            told = replace(told, notes=(f"the command: {command.text}", *told.notes))
        return replace(timeline, about=told)

    def with_settings(self, settings: Mapping[str, Any]) -> Command:
        """The command with other values for the options that are known to matter."""
        return replace(self.command, arguments=set_options(self.command.arguments, self.seen.options, settings))

    def settings_for_plans(self, settings: Settings) -> Settings:
        """The script is run once: only then is it known which options it has."""
        self.trace(TraceRequest(settings))
        known = {each.name: each.value for each in self.seen.options}
        return Settings({**settings, **known, **self.seen.runtime}, settings.roles)

    def knobs(self, settings: Settings, about: About) -> tuple[Knob, ...]:
        return option_knobs(self.seen.options, settings)

    @property
    def place(self) -> Path:
        raise InputError(
            f"{self.name} is a script: a plan for it is a command to run, which is shown; nothing is written"
        )

    def write(self, settings: Settings, target: Path | None, *, device: str = "", changes: Sequence[str] = ()) -> str:
        raise InputError(f"{self.name} is a script, and nothing is written; run: {self.with_settings(settings).text}")


def _told(about: About, name: str, settings: Mapping[str, Any]) -> About:
    details = {key: value for key, value in about.details.items() if key != "options"}
    return replace(about, job=name, settings=Settings({**settings, **about.settings}), details=details)
