"""Follows a script that trains with TensorFlow by itself: ``tf.GradientTape`` in a ``tf.function``, or in a plain
function that is one step. With ``validate`` it goes on to the functions, and the calls of Keras models, that come after
steps and take no gradients.

A function that takes gradients and updates weights is a training step. It is captured with the arguments of its first
call, and never run: what it returns is made up. When every optimizer was seen, or a step comes again and again, the
steps are traced, each beside all the variables that exist by then. The one that needs the most is the answer.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any
from unittest.mock import patch

from oomproof.errors import JobError, OomproofError
from oomproof.memory.about import BY_OPERATION, About
from oomproof.memory.settings import Settings
from oomproof.memory.timeline import Timeline
from oomproof.memory.validation import as_validation
from oomproof.trace.keras.live_models import find_optimizers, name_variables, watching_models
from oomproof.trace.request import Progress
from oomproof.trace.tensorflow.graph.capture import capture
from oomproof.trace.tensorflow.session.eager import find_eager_step
from oomproof.trace.tensorflow.session.loop_body import NAME
from oomproof.trace.tensorflow.session.old_sessions import refuse_training_in_sessions
from oomproof.trace.tensorflow.session.steps import make_up_results, updates_weights, with_others
from oomproof.trace.tensorflow.trace_step import Dialect, trace_step
from oomproof.trace.user_code import is_users, user_line_now

MOST = 12
"""calls of one step, after which other optimizers that were not seen are not waited for"""
EAGER = 1.8
"""times as much, at worst, where a step runs operation by operation: its tape keeps more, and nothing is fused. Real
steps of five networks on the CPU took 1.01 (convolutions alone), 1.05 (dense layers), 1.19 (ResNet50), 1.74 and 1.75
times (batch normalisation, MobileNetV2) what is forecast of their compiled graphs (TensorFlow 2.21, Keras 3.15)"""
_EAGER = (
    "the step runs operation by operation, without tf.function: the expected figure is that of its compiled graph, the "
    f"upper one {EAGER} times as much (put @tf.function on it: that takes less, and is faster)"
)
_XLA = "tf.function(jit_compile=True): the figures are for the step without XLA, which plans memory in another way"
_IN_A_LOOP = (
    "the training step is in the body of a loop, not in a function, and what is between its tf.GradientTape and its "
    "update cannot be captured as one, since it asks for numbers or leaves the loop's function. Put it into a function "
    "of the batch under @tf.function, which also makes it faster"
)


@dataclass(frozen=True)
class SeenStep:
    concrete: Any
    scopes: dict[str, str]
    line: str


@dataclass(frozen=True)
class TimelineDestination:
    """Where Timelines go."""

    save: Callable[[Timeline], None]
    """ends the process with this one"""
    keep: Callable[[Timeline], None]
    """the largest of those that were kept is told, however the script goes on"""
    finish: Callable[[], None]
    """ends the process with what was kept"""


class FunctionSession:
    """The rest of the process."""

    def __init__(
        self,
        tf: Any,
        destination: TimelineDestination,
        say: Progress,
        *,
        dialect: Dialect,
        capability: tuple[int, int],
        validate: bool,
    ) -> None:
        self.tf, self._destination, self._say, self._dialect, self._validate = tf, destination, say, dialect, validate
        self._trained: Timeline | None = None
        """the step that needs the most, once enough was seen of the training; only with ``validate``"""
        self._between: dict[int, SeenStep] = {}
        """what is called between epochs, by id() of function or model"""
        self._capability = ".".join(map(str, capability))
        self.steps: dict[int, SeenStep] = {}
        """training steps by id() of their function"""
        self.runtime: dict[str, Any] = {}
        self.busy = False
        """while oomproof itself traces"""
        self._calls: dict[int, int] = {}
        self._harmless: set[int] = set()
        self._without_weights: set[int] = set()
        """of these, what reads no variable: it validates nothing"""
        self._alive: list[Any] = []
        """functions that were seen, so that no other gets the id() of one"""
        self._gradients = 0
        self._eager = False
        """the step is not in a tf.function"""
        self._notes: list[str] = []

    # -- what is seen ------------------------------------------------------------------------------------------

    def watch(self) -> None:
        """For the rest of the process."""
        tf, session = self.tf, self
        kind = type(tf.function(lambda: None))
        call, enter = kind.__call__, tf.GradientTape.__enter__

        def call_watched(function: Any, *args: Any, **kwargs: Any) -> Any:
            if session.busy or not tf.executing_eagerly():
                return call(function, *args, **kwargs)
            if id(function) in session._harmless and not session._may_validate(function):
                return call(function, *args, **kwargs)
            return session._follow_call(function, call, args, kwargs)

        def enter_watched(tape: Any) -> Any:
            if not session.busy and tf.executing_eagerly():
                here = inspect.currentframe()
                if here is not None and here.f_back is not None:
                    session._follow_tape(here.f_back)
            return enter(tape)

        def count_calls(method: Callable[..., Any]) -> Callable[..., Any]:
            def count(*args: Any, **kwargs: Any) -> Any:
                session._gradients += 1
                return method(*args, **kwargs)

            return count

        patch.object(kind, "__call__", call_watched).start()
        patch.object(tf.GradientTape, "__enter__", enter_watched).start()
        patch.object(tf.GradientTape, "gradient", count_calls(tf.GradientTape.gradient)).start()
        patch.object(tf, "gradients", count_calls(tf.gradients)).start()
        refuse_training_in_sessions(tf)

    def _follow_call(self, function: Any, call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        self._alive.append(function)
        if id(function) not in self.steps:
            before, scopes = self._gradients, dict[str, str]()
            with watching_models(scopes):
                concrete = function.get_concrete_function(*args, **kwargs)
            if self._gradients == before or not concrete.graph.variables:
                self._harmless.add(id(function))
                if not concrete.graph.variables:
                    self._without_weights.add(id(function))
                if concrete.graph.variables and self._may_validate(function):
                    return self._validates(function, concrete, scopes)
                return call(function, *args, **kwargs)
            if not updates_weights(concrete):
                self._note_update_outside()
            self._add(function, concrete, scopes)
        self._calls[id(function)] = self._calls.get(id(function), 0) + 1
        if self._calls[id(function)] > 1 and (self._has_seen_all() or self._calls[id(function)] >= MOST):
            self._saw_enough()
        return make_up_results(self.tf, self.steps[id(function)].concrete)

    # -- what comes between epochs -----------------------------------------------------------------------------

    def watch_models(self, keras: Any) -> None:
        """Calls of models outside of any function, with ``validate``."""
        if not self._validate:
            return
        session, call = self, keras.Model.__call__

        def call_watched(model: Any, *args: Any, **kwargs: Any) -> Any:
            if session._trained is None or session.busy or not session.tf.executing_eagerly():
                return call(model, *args, **kwargs)
            scopes: dict[str, str] = {}
            session.busy = True
            try:
                with watching_models(scopes):
                    made = session.tf.function(lambda *given: call(model, *given, **kwargs), autograph=False)
                    concrete = made.get_concrete_function(*args)
            finally:
                session.busy = False
            return session._validates(model, concrete, scopes)

        patch.object(keras.Model, "__call__", call_watched).start()

    def _saw_enough(self) -> None:
        """Of the training: the end, or the first of two parts."""
        if not self._validate or self._between:
            self.end()
        if self._trained is None:
            self._trained = self.build()
            self.busy = False
            self._destination.keep(with_notes(self._trained, "--validate: no validation was seen after its steps"))
            self._say("waiting for the first validation")

    def _may_validate(self, function: Any) -> bool:
        return self._trained is not None and id(function) not in self._without_weights

    def _validates(self, function: Any, concrete: Any, scopes: dict[str, str]) -> Any:
        """Something that takes no gradients, after steps: traced once, and never run."""
        if id(function) not in self._between:
            self._alive.append(function)
            line = user_line_now()
            self._say(f"capturing the validation at {line.rpartition(':')[0]}")
            self._between[id(function)] = SeenStep(concrete, scopes, line)
        return make_up_results(self.tf, self._between[id(function)].concrete)

    def _add(self, function: Any, concrete: Any, scopes: dict[str, str]) -> None:
        line = user_line_now()
        self._say(f"capturing the step at {line.rpartition(':')[0]}")
        self.steps[id(function)] = SeenStep(concrete, scopes, line)

    def _follow_tape(self, frame: FrameType) -> None:
        found = find_eager_step(frame) if is_users(frame.f_code.co_filename) else None
        if found is None:
            return
        if found.function is None:
            raise JobError(f"{_IN_A_LOOP} (at {user_line_now()})")
        scopes: dict[str, str] = {}
        in_loop = found.function.__name__ == NAME
        made = self.tf.function(found.function, autograph=not in_loop)  # its source is in no file
        try:
            with watching_models(scopes):
                concrete = made.get_concrete_function(*found.arguments, **found.names)
        except Exception as error:
            if not in_loop:
                raise
            reason = " ".join(str(error).split())[:200]
            raise JobError(f"{_IN_A_LOOP} (at {user_line_now()}; {type(error).__name__}: {reason})") from error
        self._eager = True
        self._add(made, concrete, scopes)
        self.end()

    def _note_update_outside(self) -> None:
        note = "weights are updated outside of the tf.function that takes the gradients: that update is not traced"
        if note not in self._notes:
            self._notes.append(note)

    def _has_seen_all(self) -> bool:
        """Whether the steps use every optimizer that has anything to update."""
        used = {id(handle) for step in self.steps.values() for handle, _ in step.concrete.graph.captures}
        return all(
            any(id(each.value.handle) in used for each in optimizer.variables)
            for optimizer in find_optimizers()
            if optimizer.built
        )

    # -- what comes of it --------------------------------------------------------------------------------------

    def end(self) -> None:
        if self._trained is None:
            self._destination.save(self.build())
        self.keep_validation()
        self._destination.finish()

    def keep_validation(self) -> None:
        """Keeps what was seen of it, or the training, whichever needs more."""
        if self._trained is None or not self._between:
            return
        self.busy = True
        found = []
        for step in self._between.values():
            with suppress(OomproofError):  # such as a function that takes an iterator apart
                found.append(as_validation(self._trace(step, "the validation")))
        if not found:
            return
        largest = max(found, key=lambda each: int(each.peak().bytes))
        trained, between = (each.peak().bytes / 2**30 for each in (self._trained, largest))
        note = f"validation was traced too: {between:.2f} GiB of tensors at its peak, {trained:.2f} in training"
        most = with_notes(max(self._trained, largest, key=lambda each: int(each.peak().bytes)), note)
        self._destination.keep(replace(most, about=replace(most.about, validated=True)))

    def build(self) -> Timeline:
        """The step that needs the most."""
        self.busy = True
        every = [self._trace(step) for step in self.steps.values()]
        largest = max(every, key=lambda each: int(each.peak().bytes))
        if len(every) > 1:
            note = f"the script has {len(every)} steps, each a function; the one that needs the most is forecast"
            largest = with_notes(largest, note)
        return largest

    def _trace(self, step: SeenStep, what: str = "the step") -> Timeline:
        notes = [f"{what}: {step.line}", *self._notes]
        if step.concrete.function_def.attr["_XlaMustCompile"].b:
            notes.append(_XLA)
        optimizers = find_optimizers()
        about = About(
            settings=Settings(self.runtime),
            notes=tuple(notes),
            optimizer=type(optimizers[0]).__name__ if optimizers else "",
            details={"steps": 1},
        )
        traced = trace_step(
            with_others(self.tf, capture(step.concrete, ())),
            names=name_variables(step.scopes),
            dialect=self._dialect,
            capability=self._capability,
            about=about,
            progress=self._say,
        )
        if not self._eager:
            return traced
        orders = {**traced.about.orders, BY_OPERATION: int(EAGER * traced.peak().bytes)}
        unseen = (*traced.about.unseen, _EAGER)
        return replace(traced, about=replace(traced.about, orders=orders, unseen=unseen))


def with_notes(step: Timeline, *notes: str) -> Timeline:
    return replace(step, about=replace(step.about, notes=(*step.about.notes, *notes)))
