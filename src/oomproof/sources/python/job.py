"""``FILE.py:FUNCTION``: a function of the user's that returns a TorchJob, a KerasJob or a TensorFlowJob. Its parameters
are the job's settings."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, get_args, get_origin, get_type_hints

from oomproof.errors import InputError, JobError, near
from oomproof.files.looking import is_file, say_why_no_file
from oomproof.files.regular import read_regular
from oomproof.frameworks.side_by_side import before_torch
from oomproof.memory.about import About
from oomproof.memory.batch_rule import BatchRule
from oomproof.memory.timeline import Timeline
from oomproof.sources.job import SUFFIX, Job, Knob, Setting, Settings, TraceRequest
from oomproof.sources.keras.installed import backend_now, is_model
from oomproof.sources.keras.job import KerasJob
from oomproof.sources.keras.xla import remember_compile
from oomproof.sources.python.knobs import parameter_knobs
from oomproof.sources.python.words import BATCHES, SIZES, role_of
from oomproof.sources.tensorflow.job import TensorFlowJob
from oomproof.sources.torch.job import TorchJob, settings_in_force
from oomproof.sources.torch.training_code import write_training_code
from oomproof.sources.without_training import without_training
from oomproof.trace.user_code import blaming_user_code

_LARGEST = 4 << 20
"""bytes of a Python file: Python takes minutes to compile what is larger, and nobody has written it"""


@dataclass(frozen=True)
class PythonJob(Job):
    name: str
    make: Callable[..., Any]
    parameters: tuple[Setting, ...]
    path: Path
    literals: Mapping[str, tuple[Any, ...]]
    """the values of parameters that are annotated with ``typing.Literal``"""

    @property
    def settings(self) -> tuple[Setting, ...]:
        known, is_torch = self._settings
        names = {each.name for each in known}
        # What the job's code sets for the whole process it may set as late as in its step.
        return (*known, *(each for each in (settings_in_force() if is_torch else ()) if each.name not in names))

    @cached_property
    def _settings(self) -> tuple[tuple[Setting, ...], bool]:
        """The settings that its function says, and whether it makes a TorchJob."""
        job = self._job(Settings())
        others = (each for each in job.settings if each.name not in self._taken)
        return with_one_batch((*self.parameters, *others)), isinstance(job, TorchJob)

    @property
    def _own(self) -> set[str]:
        return {parameter.name for parameter in self.parameters}

    @property
    def _taken(self) -> set[str]:
        """Names that the function's parameters stand for; one for the size of images stands for ``image_size``."""
        return self._own | ({"image_size"} if self._own & set(SIZES) else set())

    def trace(self, request: TraceRequest) -> Timeline:
        # A parameter of the user's is theirs, even if a setting of every training has its name.
        settings = request.settings
        if request.validation is not None and request.validation.batch and settings.name_of("batch"):
            settings = settings.with_values({settings.name_of("batch"): request.validation.batch})
        step = self._job(settings).trace(request.with_settings(settings.without(*self._own)))
        return replace(step, about=replace(step.about, settings=settings))

    def torch_pieces(self, settings: Settings) -> tuple[Any, Settings]:
        """The job in plain pieces, and the settings of its training: a parameter of the user's is theirs."""
        return self._job(settings), settings.without(*self._own)

    def validates(self, settings: Settings) -> bool:
        return self._job(settings).validates(settings)

    def batch_rule(self, settings: Settings) -> BatchRule:
        return self._job(settings).batch_rule(settings)

    def validation_rule(self, settings: Settings) -> BatchRule:
        return self._job(settings).validation_rule(settings)

    def knobs(self, settings: Settings, about: About) -> tuple[Knob, ...]:
        """The job's own knobs win over those that its parameters suggest, and these over the ones of every job."""
        job = self._job(settings)
        declared = {knob.name for knob in job.extra_knobs}
        guessed = parameter_knobs(self.parameters, self.literals, settings)
        guessed = tuple(knob for knob in guessed if knob.name not in declared)
        taken = ({knob.name for knob in guessed} | self._taken) - declared - set(BATCHES)
        return (*(knob for knob in job.knobs(settings, about) if knob.name not in taken), *guessed)

    def settings_for_plans(self, settings: Settings) -> Settings:
        return self._job(settings).settings_for_plans(settings)

    def settings_for_time(self, settings: Settings) -> Settings | None:
        return self._job(settings).settings_for_time(settings)

    def price_data(self, settings: Settings) -> Callable[[Settings], Mapping[str, Any]]:
        job = self._job(settings)
        if not isinstance(job, KerasJob):
            return lambda sizes: {}
        price = job.price_data(settings)
        return lambda sizes: price(sizes.without(*self._own))

    @property
    def place(self) -> Path:
        return self.path.with_suffix(SUFFIX)

    def training_code(self, settings: Settings, path: Path, changes: Sequence[str]) -> Sequence[str]:
        function = self.name.rpartition(":")[2]
        changed = {p.name: settings[p.name] for p in self.parameters if settings[p.name] != p.default}
        given = ", ".join(f"{name}={value!r}" for name, value in self._values(Settings(changed)).items())
        made = self._make(settings)
        job = self._as_job(made, settings)
        code = [f"from {self.path.stem} import {function}", ""]
        code.append(f"{'model' if is_model(made) else 'pieces'} = {function}({given})")
        if isinstance(job, KerasJob):
            from oomproof.sources.keras import training_code as keras

            if not is_model(made):
                code.append("model = pieces.model" if is_model(job.model) else "model = pieces.model()")
            if hasattr(job.data, "element_spec"):  # what batches() takes
                code.append("dataset = pieces.data")
            return keras.write_training_code(settings, path, code, changes)
        if isinstance(job, TensorFlowJob):
            return [*code, "# pieces.step(batch) is one step"]
        own_step = job.step is not None
        code.append(
            "model, step = pieces.model(), pieces.step" if own_step else "model, loss = pieces.model(), pieces.loss"
        )
        return write_training_code(settings, path, code, own_step=own_step, own=self._own)

    def _values(self, settings: Settings) -> dict[str, Any]:
        """What the function is called with. A value of a Literal was read as text: the function gets its own back."""
        values = {p.name: settings[p.name] for p in self.parameters if p.name in settings}
        for name in values.keys() & self.literals.keys():
            values[name] = next(each for each in self.literals[name] if str(each) == str(values[name]))
        return values

    def _job(self, settings: Settings) -> TorchJob | KerasJob | TensorFlowJob:
        return self._as_job(self._make(settings), settings)

    def _make(self, settings: Settings) -> Any:
        """What the function returns."""
        chosen = self._values(settings)
        with blaming_user_code(), without_training("when it is called"):
            return self.make(**chosen)

    def _as_job(self, made: Any, settings: Settings) -> TorchJob | KerasJob | TensorFlowJob:
        job: Any = KerasJob(made) if is_model(made) else made
        if not isinstance(job, (TorchJob, KerasJob, TensorFlowJob)):
            raise JobError(
                f"{self.name} must return an oomproof.TorchJob, KerasJob or TensorFlowJob; it returned a "
                f"{type(job).__name__} (see docs/jobs.md)"
            )
        if isinstance(job, KerasJob) and (images := self._find_batch(settings)):
            job = job.with_batch(images)
        named: TorchJob | KerasJob | TensorFlowJob = replace(job, name=self.name)
        return named

    def _find_batch(self, settings: Settings) -> int | None:
        """What the function's own parameter for the batch is."""
        for parameter in with_one_batch(self.parameters):
            if parameter.plays and "batch" in (parameter.role, parameter.name):
                value = settings.get(parameter.name, parameter.default)
                return value if type(value) is int and value > 0 else None
        return None


def with_one_batch(settings: tuple[Setting, ...]) -> tuple[Setting, ...]:
    """Of several settings that might be the batch, the one with the most usual name is."""
    names = [each.name for each in settings if each.role == "batch" or each.name == "batch"]
    first = min(names, key=BATCHES.index, default="")
    return tuple(replace(each, plays=False) if each.name in names and each.name != first else each for each in settings)


def open_python(path: Path, function: str) -> PythonJob:
    if not is_file(path):
        why = say_why_no_file(path)
        raise InputError(f"{why}: expected a Python file with a function that returns a TorchJob or a KerasJob")
    module = _import(path)
    make = getattr(module, function, None)
    if not callable(make):
        names = [name for name, value in vars(module).items() if inspect.isfunction(value)]
        meant = near(function, names, 0.4) or names[:3]
        raise InputError(
            f"{path} has no function '{function}'"
            + (f"; it has {', '.join(meant)}" if meant else " (it has no functions)")
        )
    if is_model(make):
        built = make
        make = lambda: built  # noqa: E731 (a compiled model that is there, in place of a function that builds it)
    name = f"{path.name}:{function}"
    literals = _literals(make, name)
    return PythonJob(name, make, _parameters(make, name, literals), path, literals)


def _parameters(make: Callable[..., Any], name: str, literals: Mapping[str, tuple[Any, ...]]) -> tuple[Setting, ...]:
    parameters = inspect.signature(make).parameters.values()
    for parameter in parameters:
        if parameter.default is parameter.empty or parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            raise InputError(
                f"{name}: every parameter needs a default, the job's present setting; '{parameter.name}' has none"
            )
    return tuple(
        Setting(
            p.name,
            p.default,
            f"parameter of {name}",
            tuple(map(str, literals.get(p.name, ()))),
            own=True,
            role=role_of(p.name, p.default),
            given_as="--batch {value}" if p.name == "batch" else "",
        )
        for p in parameters
    )


def _literals(make: Callable[..., Any], name: str) -> dict[str, tuple[Any, ...]]:
    """The values of every parameter annotated with a Literal; its default must be one of them."""
    hints = {name: _hint(make, hint) for name, hint in getattr(make, "__annotations__", {}).items() if name != "return"}
    found = {name: get_args(hint) for name, hint in hints.items() if get_origin(hint) is Literal}
    defaults = {p.name: p.default for p in inspect.signature(make).parameters.values()}
    for parameter, values in found.items():
        default = defaults[parameter]
        if default is not inspect.Parameter.empty and default not in values:
            raise InputError(
                f"{name}: the default of '{parameter}' must be one of its Literal's values "
                f"({', '.join(map(str, values))}); it is {default!r}"
            )
    return found


def _hint(make: Callable[..., Any], hint: Any) -> Any:
    """One annotation, evaluated; None where it names what exists for a type checker only."""
    alone = SimpleNamespace(__annotations__={"hint": hint})
    try:
        return get_type_hints(alone, getattr(make, "__globals__", {}))["hint"]
    except (NameError, AttributeError, TypeError, SyntaxError):
        return None


def _import(path: Path) -> Any:
    """The user's file as a module, able to import its neighbours as it would when run."""
    try:
        text = read_regular(path, _LARGEST).decode("utf-8", errors="ignore")
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}; expected a Python file") from error
    if "keras" in text and "KERAS_BACKEND" not in text and backend_now() == "tensorflow":
        with suppress(ImportError):  # without the greetings that TensorFlow prints; its absence is the file's to tell
            from oomproof.trace.tensorflow.graph.capture import tensorflow

            tensorflow()
    before_torch()
    spec = importlib.util.spec_from_file_location(f"oomproof_job_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    sys.modules[spec.name] = module
    try:
        with blaming_user_code(), without_training("when it is imported"):
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[spec.name]
        raise
    remember_compile()
    return module
