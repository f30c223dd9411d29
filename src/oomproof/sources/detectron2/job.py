"""A Detectron2 training as a Job: its keys are its settings."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from oomproof.errors import InputError
from oomproof.memory.about import About
from oomproof.memory.batch_rule import BatchRule
from oomproof.memory.batch_spec import MOST_OBJECTS, OBJECTS_HELP, OTHER_OBJECTS
from oomproof.memory.runtime import CHOICES
from oomproof.memory.runtime import HELP as RUN_HELP
from oomproof.memory.timeline import Timeline
from oomproof.sources.detectron2.config import keys
from oomproof.sources.detectron2.config.config import Config, read
from oomproof.sources.detectron2.config.schema import DEFAULTS
from oomproof.sources.detectron2.notes import note_device, notes
from oomproof.sources.detectron2.sizes import count_processes, images_per_gpu, largest_image
from oomproof.sources.detectron2.validation import describe_validation, validation_rule
from oomproof.sources.job import ASSUMED, Job, Knob, Setting, Settings, TraceRequest
from oomproof.sources.torch.job import training_settings

_TRAINING = ("precision", "optimizer", "accumulate", "checkpoint", "zero_grad")
"""what may be said of a training beside its config; the rest is as Detectron2 has it"""


@dataclass(frozen=True)
class Detectron2Job(Job):
    """A config, and the script that it was read out of, where it was one."""

    name: str
    config: Config
    script: Path | None = None
    training: Mapping[str, Any] = field(default_factory=dict)
    """other defaults of settings, where the script's code decides them: {"accumulate": 4}"""
    open: Mapping[str, str] = field(default_factory=dict)
    """settings that the script decides only when it runs, with what to say where nobody gives them"""

    @property
    def settings(self) -> tuple[Setting, ...]:
        values = {**self.config.values, "gpus": 1}
        size = largest_image(values) if _has_size(values) else (800, 1333)
        own = keys.settings(self.config.values, self.config.unknown)
        around = (
            Setting("gpus", self.training.get("gpus", 1), "GPUs that share SOLVER.IMS_PER_BATCH"),
            Setting(
                "image_size", size, "height x width of the largest images after resizing, in pixels",
                follows=largest_image,
            ),
            Setting("boxes", MOST_OBJECTS, OBJECTS_HELP, basis=ASSUMED, usual=OTHER_OBJECTS),
            Setting(
                "real", _is_installed(), "trace Detectron2's own code, where it is installed, not a blueprint of it",
            ),
        )  # fmt: skip
        found = (*own, *around, *_training(self.config.values, self.training), *_run(self.training))
        return tuple(
            replace(each, follows=_refusal(self.open[each.name])) if each.name in self.open else each for each in found
        )

    def trace(self, request: TraceRequest) -> Timeline:
        from oomproof.sources.detectron2.pieces import pieces

        settings = request.settings
        if settings["real"] and not _is_installed():
            raise InputError(
                "real=true wants Detectron2 to be installed; leave it out to trace a blueprint of the model"
            )
        job = replace(pieces(self.values(settings), settings, request.batch, request.validation), name=self.name)
        step = job.trace(replace(request, batch=None))
        if request.validation is None:
            told = (
                *notes(
                    self.config,
                    self.values(settings),
                    request.without_known_objects(settings),
                    own_sizes="image_size" in self.open,
                ),
                *step.about.notes,
            )
        else:
            told = (*describe_validation(self.values(settings), request.batch), *step.about.notes)
        # Workers hand over lists of images; the model stacks them on the device.
        about = replace(step.about, notes=told, settings=settings, stacked_by_workers=False)
        unseen = (*about.unseen, *note_device(self.values(settings)), *self.config.guesses)
        return replace(step, about=replace(about, unseen=unseen))

    def torch_pieces(self, settings: Settings) -> tuple[Any, Settings]:
        """The job in plain pieces, and the settings of its training."""
        from oomproof.sources.detectron2.pieces import pieces

        return replace(pieces(self.values(settings), settings), name=self.name), settings

    def batch_rule(self, settings: Settings) -> BatchRule:
        from oomproof.sources.detectron2.batches import batch_rule

        return batch_rule(self.values(settings), settings)

    def validation_rule(self, settings: Settings) -> BatchRule:
        return validation_rule(self.values(settings))

    def values(self, settings: Settings) -> dict[str, Any]:
        """Every key of Detectron2, as ``settings`` have it."""
        return {**self.config.values, **{key: value for key, value in settings.items() if key in DEFAULTS}}

    def knobs(self, settings: Settings, about: About) -> tuple[Knob, ...]:
        from oomproof.sources.detectron2.knobs import knobs

        found = knobs(self.values(settings), settings, about, unknown=self.config.unknown)
        sizes = ("INPUT.MIN_SIZE_TRAIN", "DATALOADER.ASPECT_RATIO_GROUPING") if "image_size" in self.open else ()
        return tuple(knob for knob in found if knob.name not in sizes)  # whatever INPUT says

    @property
    def place(self) -> Path:
        from oomproof.sources.detectron2.write import choose_target

        return choose_target(self.config, self.script)

    def write(self, settings: Settings, target: Path | None, *, device: str = "", changes: Sequence[str] = ()) -> str:
        from oomproof.sources.detectron2.write import write

        place = target or self.place
        return write(self.config, self.script, settings, place, device=device, changes=changes, there=self.training)


def open_detectron2(text: str, overrides: Sequence[str] = ()) -> Detectron2Job:
    """A YAML file or a name of the model zoo, with KEY VALUE pairs over it."""
    return check_job(Detectron2Job(text, read(text, overrides)))


def check_job(job: Detectron2Job) -> Detectron2Job:
    meta = job.config.values["MODEL.META_ARCHITECTURE"]
    if meta not in keys.SUPPORTED:
        origin = job.config.origins.get("MODEL.META_ARCHITECTURE", job.name)
        raise InputError(
            f"{origin}: MODEL.META_ARCHITECTURE {meta} cannot be forecast; supported are {', '.join(keys.SUPPORTED)}. "
            "Give the job as FILE.py:FUNCTION (docs/jobs.md)"
        )
    return job


def _has_size(values: Mapping[str, Any]) -> bool:
    try:
        largest_image(values)
    except InputError:  # said when the settings are resolved, with what the user gave
        return False
    return True


def _is_installed() -> bool:
    """Detectron2 with its compiled part: a folder of that name in the working directory is not enough."""
    found = importlib.util.find_spec("detectron2")
    folders = (found.submodule_search_locations or ()) if found else ()
    return any(next(Path(folder).glob("_C*.*"), None) for folder in folders)


def _training(values: Mapping[str, Any], said: Mapping[str, Any]) -> tuple[Setting, ...]:
    """``said``: what the code of a script decides."""
    decided = {name: value for name, value in said.items() if name in _TRAINING}
    defaults = {"zero_grad": "before_backward", "precision": _precision(values), **decided}
    found = [setting for setting in training_settings(defaults) if setting.name in _TRAINING]

    def by_key(settings: Mapping[str, Any]) -> str:
        return _precision(settings, said.get("half", "fp16"))

    free = "precision" not in said  # a script may build its trainer by hand
    return tuple(replace(each, follows=by_key) if each.name == "precision" and free else each for each in found)


def _precision(settings: Mapping[str, Any], half: str = "fp16") -> str:
    return half if settings["SOLVER.AMP.ENABLED"] else "fp32"


def _run(said: Mapping[str, Any]) -> tuple[Setting, ...]:
    """Settings of the run around the step that a config or a script decides."""
    follows = {
        "ddp": lambda settings: images_per_gpu(settings) > 0 and settings["gpus"] > 1,  # a bad share is refused
        "processes": count_processes,
        "workers": lambda settings: settings["DATALOADER.NUM_WORKERS"],
        "cudnn_benchmark": lambda settings: settings["CUDNN_BENCHMARK"],
    }
    defaults = {"ddp": False, "processes": 1, "workers": 0, "cudnn_benchmark": False}
    found = [
        Setting(name, defaults[name], RUN_HELP[name], follows=rule, plays=name != "workers")
        for name, rule in follows.items()
    ]
    # Its data sets are arrays of pickled bytes, and one epoch goes on as long as the training.
    loader = {"annotations": ("buffers", CHOICES["annotations"]), "persistent_workers": (True, ())}
    found += [Setting(name, usual, RUN_HELP[name], words) for name, (usual, words) in loader.items()]
    name = "gradient_as_bucket_view"
    return (*found, *([Setting(name, bool(said[name]), RUN_HELP[name])] if name in said else []))


def _refusal(why: str) -> Callable[[Mapping[str, Any]], Any]:
    """For a setting that nobody knows: asked for only where the user does not give it."""

    def refuse(_: Mapping[str, Any]) -> Any:
        raise InputError(why)

    return refuse
