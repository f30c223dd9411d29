"""A training script as a job: its process is followed, and what it does on the GPU becomes a Timeline."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from oomproof.errors import InputError, JobError
from oomproof.memory.about import About
from oomproof.memory.cards.devices import Device
from oomproof.memory.settings import Settings
from oomproof.memory.timeline import Timeline
from oomproof.sources.job import Job, Knob, Setting, TraceRequest
from oomproof.sources.keras.xla import CHOICES as XLA
from oomproof.sources.keras.xla import HELP as OF_XLA
from oomproof.sources.keras.xla import as_switch
from oomproof.sources.script.command import Command
from oomproof.sources.script.options import (
    Found,
    find_options,
    find_written,
    option_knobs,
    set_options,
    try_value,
)
from oomproof.sources.script.patch import show_patch, write_patch
from oomproof.sources.script.places import edit, find_in_script, find_in_settings
from oomproof.sources.script.running import Run, run_script
from oomproof.sources.settings import runtime_settings

PATIENCE = 300
"""seconds; a script's own start, its data set and two steps"""
MOST_TRIED = 3
"""values of one part that are tried, each by a run of the script"""
COUNTS = 0.98
"""of the peak: a value that lowers it less does not count"""
_HOW = ("patience", "validate", "jit_compile")


@dataclass
class Seen:
    """What runs of the script have shown."""

    runtime: dict[str, Any] = field(default_factory=dict)
    """workers, cudnn.benchmark"""
    options: tuple[Found, ...] = ()
    """of its command line, and values in files that were seen to count"""
    guesses: tuple[Found, ...] = ()
    """values in files that may count, by their names"""
    steps: dict[tuple[Any, ...], Timeline] = field(default_factory=dict)
    """by its arguments: a plan asks for the same more than once"""


@dataclass(frozen=True)
class ScriptJob(Job):
    not_measured = "a script's steps cannot be run apart; `oomproof watch PID` reads a running one"

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
            Setting("jit_compile", "own", OF_XLA, XLA, read=as_switch),
            *(each.as_setting() for each in self.seen.options),
            *runtime_settings(self.seen.runtime),
            *runtime_settings(self.seen.runtime, of_tensorflow=True),
        )

    def trace(self, request: TraceRequest) -> Timeline:
        request.refuse_batch(self.name)
        settings = request.settings
        command, edits = self.with_settings(settings), self.edits(settings)
        key = (command.arguments, *edits.items(), *(settings[name] for name in _HOW))
        first = not self.seen.steps  # how the script runs is known only after that
        if key not in self.seen.steps:
            run = Run(
                command,
                device=request.device,
                patience=settings["patience"],
                validate=settings["validate"],
                jit_compile=settings["jit_compile"],
                edits=edits,
            )
            timeline = run_script(run, request.progress)
            self.seen.steps[key] = timeline
            if first:
                self._note(timeline.about)
        timeline = self.seen.steps[key]
        told = _told(timeline.about, self.name, settings)
        if not first and self.command_to_run(settings) != self.command.text:
            told = replace(told, notes=(f"the command: {self.command_to_run(settings)}", *told.notes))
        if edits:
            told = replace(told, notes=(f"the change: {self._describe_edits(settings)}", *told.notes))
        return replace(timeline, about=told)

    def _note(self, about: About) -> None:
        self.seen.runtime.update(about.settings)
        self.seen.options = find_options(about.details.get("options", ()))
        if self.command.kind == "file":
            script = find_in_script(str(Path(self.command.target).resolve()))
            files = find_in_settings(about.details.get("read", ()))
            self.seen.guesses = find_written((*files, *script), self.seen.options)

    def edits(self, settings: Mapping[str, Any]) -> dict[str, bytes]:
        """The script's files with other values, where they hold them."""
        known = (*self.seen.options, *self.seen.guesses)
        changed = {
            each.place: settings[each.name]
            for each in known
            if each.place is not None and settings.get(each.name, each.value) != each.value
        }
        return edit(changed)

    def _describe_edits(self, settings: Mapping[str, Any]) -> str:
        known = [each for each in self.seen.options if each.place is not None]
        changed = [each for each in known if settings.get(each.name, each.value) != each.value]
        return ", ".join(f"{each.option}: {each.value} becomes {settings[each.name]}" for each in changed)

    def _confirm_guesses(self, settings: Settings, device: Device | None) -> None:
        """Runs the script with another value for what may count: it counts if the peak is lower then. One of each
        part; of accumulation nothing is seen in a step, so its name must do."""
        now = int(self.trace(TraceRequest(settings, device)).peak().bytes)
        tried: Counter[str] = Counter()
        for guess in self.seen.guesses:
            other = try_value(guess)
            taken = {each.part for each in self.seen.options}
            if guess.part in taken or tried[guess.part] >= MOST_TRIED:
                continue
            if other is not None:
                tried[guess.part] += 1
                changed = Settings({**settings, guess.name: other}, settings.roles)
                with suppress(JobError):
                    lower = int(self._trace_alone(guess, TraceRequest(changed, device)).peak().bytes)
                    if lower < COUNTS * now:
                        self.seen.options = (*self.seen.options, guess)
        if any(each.part == "batch" for each in self.seen.options):
            accumulation = [each for each in self.seen.guesses if each.part == "accumulation"]
            known = any(each.part == "accumulation" for each in self.seen.options)
            self.seen.options = (*self.seen.options, *accumulation[: 0 if known else 1])
        self.seen.guesses = ()

    def _trace_alone(self, guess: Found, request: TraceRequest) -> Timeline:
        """Under one guess: others of its name keep their values."""
        alone = ScriptJob(self.command, replace(self.seen, guesses=(guess,)))
        return alone.trace(request)

    def with_settings(self, settings: Mapping[str, Any]) -> Command:
        """The command with other values for the options that are known to matter."""
        return replace(self.command, arguments=set_options(self.command.arguments, self.seen.options, settings))

    def command_to_run(self, settings: Mapping[str, Any]) -> str:
        """As a person would type it, with what the run around the script needs."""
        words = [self.with_settings(settings).text]
        if settings.get("expandable_segments") and not self.seen.runtime.get("expandable_segments"):
            words.insert(0, "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True")
        growth = bool(settings.get("memory_growth", False))
        if growth != self.seen.runtime.get("memory_growth", False):  # the variable overrules what the script says
            words.insert(0, f"TF_FORCE_GPU_ALLOW_GROWTH={str(growth).lower()}")
        return " ".join(words)

    def settings_for_plans(self, settings: Settings) -> Settings:
        """The script is run once: only then is it known which options it has."""
        self._confirm_guesses(settings, None)
        known = {each.name: each.value for each in self.seen.options}
        return Settings({**settings, **known, **self.seen.runtime}, settings.roles)

    def settings_for_time(self, settings: Settings) -> Settings | None:
        """What XLA made one program of; on JAX there is no other way to run it."""
        compiled = [step.about for step in self.seen.steps.values() if "xla_target" in step.about.details]
        if not compiled or compiled[0].limits == "jax" or settings.get("jit_compile") == "false":
            return None
        return settings.changed({"jit_compile": "false"})

    def knobs(self, settings: Settings, about: About) -> tuple[Knob, ...]:
        return option_knobs(self.seen.options, settings)

    @property
    def place(self) -> Path:
        if self.command.kind != "file":
            raise InputError(
                f"{self.name} is not a file: a plan for it is a command to run, which is shown; nothing is written"
            )
        return Path(self.command.target)

    def show_change(self, settings: Settings) -> str:
        """The diff of the files that a plan changes."""
        return show_patch(self.edits(settings))

    def write(self, settings: Settings, target: Path | None, *, device: str = "", changes: Sequence[str] = ()) -> str:
        edited, command = self.edits(settings), self.command_to_run(settings)
        if target is not None and target.resolve() != self.place.resolve():
            raise InputError(f"a script is changed where it is: --write without {target}, then run {command}")
        if not edited:
            return f"nothing to write: run {command}"
        diff = self.show_change(settings)
        write_patch(edited, {file: Path(file).read_bytes() for file in edited})
        files = ", ".join(os.path.relpath(file) for file in edited)
        return f"{diff}\nchanged {files} (as before: .orig beside it); run {command}"


def _told(about: About, name: str, settings: Mapping[str, Any]) -> About:
    details = {key: value for key, value in about.details.items() if key not in ("options", "read")}
    return replace(about, job=name, settings=Settings({**settings, **about.settings}), details=details)
