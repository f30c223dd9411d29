"""A training script as a job: its process is followed, and what it does on the GPU becomes a Timeline."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from oomproof.errors import CannotDo, InputError, JobError
from oomproof.memory.about import BY_OPERATION, About
from oomproof.memory.cards.devices import Device
from oomproof.memory.runtime import Runtime
from oomproof.memory.settings import Settings
from oomproof.memory.timeline import Timeline
from oomproof.sources.job import Job, Knob, Setting, TraceRequest
from oomproof.sources.keras.xla import CHOICES as XLA
from oomproof.sources.keras.xla import HELP as OF_XLA
from oomproof.sources.keras.xla import as_switch
from oomproof.sources.script.accumulating import find_accumulation
from oomproof.sources.script.command import Command
from oomproof.sources.script.options import (
    OF_LOADERS,
    Found,
    find_options,
    find_written,
    option_knobs,
    set_options,
    split_off_loaders,
    try_value,
)
from oomproof.sources.script.patch import show_patch, write_patch
from oomproof.sources.script.places import edit, find_in_script, find_in_settings
from oomproof.sources.script.recomputing import NONE, ModelAt, checkpoint_knob, read_model_at
from oomproof.sources.script.recomputing import SETTING as RECOMPUTED
from oomproof.sources.script.running import ScriptRun, run_script
from oomproof.sources.settings import runtime_settings

PATIENCE = 300
"""seconds; a script's own start, its data set and two steps"""
MOST_TRIED = 3
"""values of one part that are tried, each by a run of the script"""
COUNTS = 0.98
"""of the peak: a value that lowers it less does not count"""
ORDERS_DIFFER = 1.05
"""of the lowest peak: orders that differ more are told"""
_HOW = ("patience", "validate", "batches", "gpus", "jit_compile")
_TOLD = ("options", "read", "model_at", "update_at")
"""what a run tells the job, not the user"""
_IN_CODE = {
    "workers": "DataLoader(num_workers={value})",
    "prefetch_factor": "DataLoader(prefetch_factor={value})",
    "cudnn_benchmark": "torch.backends.cudnn.benchmark = {value}",
    "gradient_as_bucket_view": "DistributedDataParallel(gradient_as_bucket_view={value})",
}
"""settings of the run, as a script's code has them"""


@dataclass
class SeenRuns:
    """What runs of the script have shown."""

    runtime: dict[str, Any] = field(default_factory=dict)
    """workers, cudnn.benchmark"""
    options: tuple[Found, ...] = ()
    """of its command line, and values in files that were seen to count"""
    model_at: ModelAt | None = None
    """where its code has a name for its model"""
    loaders: tuple[Found, ...] = ()
    """where it says how many workers its loaders have"""
    guesses: tuple[Found, ...] = ()
    """values in files that may count, by their names"""
    steps: dict[tuple[Any, ...], Timeline] = field(default_factory=dict)
    """by its arguments: a plan asks for the same more than once"""


@dataclass(frozen=True)
class ScriptJob(Job):
    not_measured = "a script's steps cannot be run apart; `oomproof watch PID` reads a running one"

    command: Command
    seen: SeenRuns = field(default_factory=SeenRuns)

    @property
    def name(self) -> str:
        return self.command.name

    @property
    def settings(self) -> tuple[Setting, ...]:
        return (
            Setting("patience", PATIENCE, "seconds that the script may take to its second step"),
            Setting("validate", False, "go on to the end of the first validation, and count it"),
            Setting(
                "batches",
                0,
                "batches of the script's DataLoader that are looked at, the largest of which is traced; 1: as they "
                "come; 0: up to 64 within 10 s, fewer where all are alike",
            ),
            Setting(
                "gpus",
                self.command.ranks or 1,
                "GPUs that the script finds, if it starts a process for each by itself (Lightning's devices=N, "
                "torch.multiprocessing.spawn); one of these processes is followed",
            ),
            Setting("jit_compile", "own", OF_XLA, XLA, read=as_switch),
            RECOMPUTED,
            *(each.as_setting() for each in self.seen.options),
            *runtime_settings(self.seen.runtime),
            *runtime_settings(self.seen.runtime, of_tensorflow=True),
        )

    def trace(self, request: TraceRequest) -> Timeline:
        request.refuse_batch(self.name)
        settings = request.settings
        if settings.get("checkpoint", NONE) != NONE and not self.seen.steps:  # where to say so is known after a run
            self.trace(replace(request, settings=settings.with_values({"checkpoint": NONE})))
        command, edits = self.with_settings(settings), self.edits(settings)
        key = (command.arguments, *edits.items(), *(settings[name] for name in _HOW))
        first = not self.seen.steps  # how the script runs is known only after that
        if key not in self.seen.steps:
            run = ScriptRun(
                command,
                device=request.device,
                patience=settings["patience"],
                validate=settings["validate"],
                batches=settings["batches"],
                gpus=settings["gpus"],
                jit_compile=settings["jit_compile"],
                edits=edits,
            )
            timeline = run_script(run, request.progress)
            self.seen.steps[key] = timeline
            if first:
                self._note(timeline.about)
        timeline = self.seen.steps[key]
        told = _complete_about(timeline.about, self.name, settings)
        if not first and self.command_to_run(settings) != self.command.text:
            told = replace(told, notes=(f"the command: {self.command_to_run(settings)}", *told.notes))
        if edits:
            told = replace(told, notes=(f"the change: {self._describe_edits(settings)}", *told.notes))
        return replace(timeline, about=told)

    def _note(self, about: About) -> None:
        self.seen.runtime.update(about.settings)
        options = find_options(about.details.get("options", ()))
        self.seen.options = tuple(each for each in options if each.part not in OF_LOADERS)
        self.seen.model_at = read_model_at(about.details.get("model_at"))
        written: tuple[Found, ...] = ()
        if self.command.kind == "file":
            file = str(Path(self.command.target).resolve())
            script = find_in_script(file)
            files = find_in_settings(about.details.get("read", ()))
            places = find_accumulation(file, about.details.get("update_at"))
            written = find_written((*files, *script, *places), self.seen.options)
            self.seen.guesses = tuple(each for each in written if each.part not in OF_LOADERS)
        self.seen.loaders = split_off_loaders((*options, *written), self.seen.runtime)

    def edits(self, settings: Mapping[str, Any]) -> dict[str, bytes]:
        """The script's files with other values, where they hold them."""
        changed = {each.place: value for each, value in self._find_changes(settings) if each.place is not None}
        edited = edit(changed)
        again, at = settings.get("checkpoint", NONE), self.seen.model_at
        if again != NONE:
            if at is None:
                raise CannotDo(f"checkpoint: the code of {self.name} has no line at which its model could be told so")
            edited[at.file] = at.insert(edited.get(at.file) or Path(at.file).read_bytes(), again)
        return edited

    def _find_changes(self, settings: Mapping[str, Any]) -> Iterator[tuple[Found, Any]]:
        """What has another value than in the script, and that value."""
        own = [(each, each.name) for each in (*self.seen.options, *self.seen.guesses)]
        for each, name in (*own, *((each, each.part) for each in self.seen.loaders)):
            if settings.get(name, each.value) != each.value:
                yield each, settings[name]

    def _describe_edits(self, settings: Mapping[str, Any]) -> str:
        changed = [(each, value) for each, value in self._find_changes(settings) if each.place is not None]
        words = [f"{each.option}: {each.value} becomes {value}" for each, value in changed]
        again, at = settings.get("checkpoint", NONE), self.seen.model_at
        if again != NONE and at is not None:
            words.append(
                f"{os.path.relpath(at.file)}:{at.line}: {again.count(',') + 1} modules of {at.name} computed again; "
                "oomproof has to be installed where it trains"
            )
        return ", ".join(words)

    def _confirm_guesses(self, settings: Settings, device: Device | None) -> None:
        """Runs the script with another value for what may count: it counts if the peak is lower then. One of each
        part; of accumulation nothing is seen in a step, so its name must do."""
        now = int(self.trace(TraceRequest(settings, device)).peak().bytes)
        settings = settings.with_values(self.seen.runtime)  # how many workers it has is known by now
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
        values = {each: value for each, value in self._find_changes(settings) if each.place is None}
        return replace(self.command, arguments=set_options(self.command.arguments, values))

    def text_under(self, settings: Settings) -> str:
        return f"-- {self.with_settings(settings).text}"

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
        known = {each.name: each.value for each in self.seen.options} | {"checkpoint": settings.get("checkpoint", NONE)}
        return Settings({**settings, **known, **self.seen.runtime}, settings.roles)

    def settings_for_time(self, settings: Settings) -> Settings | None:
        """What XLA made one program of; on JAX there is no other way to run it."""
        compiled = [step.about for step in self.seen.steps.values() if "xla_target" in step.about.details]
        if not compiled or compiled[0].limits == "jax" or settings.get("jit_compile") == "false":
            return None
        return settings.with_values({"jit_compile": "false"})

    def knobs(self, settings: Settings, about: About) -> tuple[Knob, ...]:
        return (*option_knobs(self.seen.options, settings), *checkpoint_knob(self.seen.model_at, settings))

    @property
    def place(self) -> Path:
        if self.command.kind != "file":
            raise InputError(
                f"{self.name} is not a file: a plan for it is a command to run, which is shown; nothing is written"
            )
        return Path(self.command.target)

    def show_change(self, settings: Settings) -> str:
        """The diff of the files that a plan changes, and the command to run."""
        edited, command = self.edits(settings), self.command_to_run(settings)
        if not edited and command == self.command.text and not self._by_hand(settings):
            return ""
        diff = f"{show_patch(edited)}\n--write makes this change; " if edited else ""
        return f"{diff}run: {command}{self._by_hand(settings)}"

    def _by_hand(self, settings: Mapping[str, Any]) -> str:
        """What a plan sets of the run that neither the command nor a known place of a file says."""
        known = {each.part for each in self.seen.loaders}
        seen = {**asdict(Runtime()), **self.seen.runtime}
        changed = {name: settings[name] for name in _IN_CODE if settings.get(name, seen[name]) != seen[name]}
        words = [_IN_CODE[name].format(value=value) for name, value in changed.items() if name not in known]
        return f"\nand in the code: {'; '.join(words)}" if words else ""

    def write(self, settings: Settings, target: Path | None, *, device: str = "", changes: Sequence[str] = ()) -> str:
        edited, command = self.edits(settings), self.command_to_run(settings) + self._by_hand(settings)
        if target is not None and target.resolve() != self.place.resolve():
            raise InputError(f"a script is changed where it is: --write without {target}, then run {command}")
        if not edited:
            return f"nothing to write: run {command}"
        diff = show_patch(edited)
        write_patch(edited, {file: Path(file).read_bytes() for file in edited})
        files = ", ".join(os.path.relpath(file) for file in edited)
        return f"{diff}\nchanged {files} (as before: .orig beside it); run {command}"


def _complete_about(about: About, name: str, settings: Mapping[str, Any]) -> About:
    details = {key: value for key, value in about.details.items() if key not in _TOLD}
    decisive = {key: value for key, value in settings.items() if key != "patience"}
    unseen = (_describe_end(about), *about.unseen, *_describe_orders(about))
    return replace(about, job=name, settings=Settings({**decisive, **about.settings}), details=details, unseen=unseen)


def _describe_orders(about: About) -> Iterator[str]:
    """TensorFlow's order differs from process to process, and the peak with it."""
    peaks = [peak for name, peak in about.orders.items() if name != BY_OPERATION]
    if peaks and max(peaks) > ORDERS_DIFFER * min(peaks):
        differ = max(peaks) / min(peaks) - 1
        yield (
            f"the order in which TensorFlow will run the step: its peak differs by up to {differ:.0%} from process to "
            "process, and the upper figure covers the highest"
        )


def _describe_end(about: About) -> str:
    """Where the script was left."""
    steps = int(about.details.get("steps", 0))
    seen = f"only {steps} steps were" if steps > 1 else "only one step was"
    validation = "" if about.validated else "no validation (--validate), and "
    later = "nothing that it changes later (image or batch size, frozen layers, averaged weights)"
    return f"{seen} seen: {validation}{later}"
