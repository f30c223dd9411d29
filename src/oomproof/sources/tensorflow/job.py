"""A TensorFlow training step as a job: a function and what it is called with. docs/jobs.md shows one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oomproof.errors import InputError
from oomproof.memory.about import About
from oomproof.memory.timeline import Timeline
from oomproof.sources.job import Job, Knob, Setting, Settings, TraceRequest
from oomproof.sources.settings import runtime_settings
from oomproof.trace.user_code import blaming_user_code


@dataclass(frozen=True)
class TensorFlowJob(Job):
    """One training step, as a function of TensorFlow's and its arguments.

        TensorFlowJob(train_step, lambda: (tf.TensorSpec((8, 224, 224, 3)), tf.TensorSpec((8,), tf.int32)))

    ``step(*arguments)`` does all of it: forward, loss, gradients, update. It is a tf.function or a plain function that
    could be one. Of the arguments only shapes and types are used; nothing is run.
    """

    step: Callable[..., Any]
    arguments: Any = ()
    """a tuple of tensors, arrays or TensorSpecs in any nesting, or a function that makes it"""
    name: str = "job"
    extra_knobs: tuple[Knob, ...] = ()
    """what may change to save memory, beside the parameters of a function that makes the job"""

    def __post_init__(self) -> None:
        if not callable(self.step):
            raise InputError(
                "TensorFlowJob(step=...) must be a function that does one training step; it is of type "
                f"{type(self.step).__name__}"
            )

    @property
    def settings(self) -> tuple[Setting, ...]:
        return runtime_settings({}, of_tensorflow=True)

    def trace(self, request: TraceRequest) -> Timeline:
        request.refuse_batch(self.name)
        request.refuse_validation(self.name)
        from oomproof.trace.keras.live_models import name_variables, watching_models
        from oomproof.trace.tensorflow.graph.capture import capture, tensorflow
        from oomproof.trace.tensorflow.trace_step import trace_step

        tf = tensorflow()
        scopes: dict[str, str] = {}
        with blaming_user_code():
            given = self.arguments() if callable(self.arguments) else self.arguments
            arguments = given if isinstance(given, (tuple, list)) else (given,)
            step: Any = self.step if hasattr(self.step, "get_concrete_function") else tf.function(self.step)
            with watching_models(scopes):
                captured = capture(step, arguments)
            device = request.device
            capability = device.capability if device is not None and device.capability != (0, 0) else (8, 0)
            return trace_step(
                captured,
                names=name_variables(scopes),
                capability=".".join(map(str, capability)),
                about=About(job=self.name, settings=request.settings),
                progress=request.progress,
            )

    def knobs(self, settings: Settings, about: About) -> tuple[Knob, ...]:
        return self.extra_knobs

    @property
    def place(self) -> Path:
        raise InputError("a TensorFlowJob has no file of its own: a plan for it says which settings to use")

    def training_code(self, settings: Settings, path: Path, changes: Sequence[str]) -> Sequence[str]:
        return [f"# {each}" for each in changes]
