"""Stops a script in Keras's ``fit``: Keras builds the model and makes its first batch, and the step is traced instead
of being run. Then the script goes on, since many train twice: the head first, then the whole model.

On PyTorch nothing of this is needed: there Keras's step is followed as any other (trace/torch/session).
"""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from oomproof.errors import OomproofError
from oomproof.memory.about import About
from oomproof.memory.cards.devices import Device
from oomproof.memory.settings import Settings
from oomproof.memory.timeline import Timeline
from oomproof.sources.keras.model_facts import describe_loss
from oomproof.sources.keras.notes import notes_of
from oomproof.sources.keras.xla import XlaChoice, remember_compile, way_of
from oomproof.trace.request import Progress
from oomproof.trace.tensorflow.trace_step import Dialect
from oomproof.trace.user_code import user_line_now

GRACE, LONGEST = 20.0, 60.0
"""seconds of work, and on the clock, that a script may go on after it was seen to train, to come to another fit"""
MOST = 12
"""calls of one model's train_on_batch, after which other models are not waited for"""


class Stopped(BaseException):
    """Leaves Keras's fit: its step was seen."""


class KerasFits:
    """``keep`` is given every step that is found, ``finish`` ends the process."""

    def __init__(
        self, keep: Callable[[Timeline], None], finish: Callable[[], None], say: Progress, wanted: dict[str, Any]
    ) -> None:
        self._keep, self._finish, self._say = keep, finish, say
        self._trained: Timeline | None = None
        """the step of the fit that runs now"""
        self._device: Device | None = wanted["device"]
        self._dialect: Dialect = wanted["dialect"]
        self._jit_compile: str = wanted["jit_compile"]
        self._validate: bool = wanted["validate"]
        self.runtime: dict[str, Any] = {}
        self.hands_off: Callable[[bool], None] = lambda busy: None
        """told when oomproof itself begins and ends to trace"""
        self._data: Any = None
        self._calls: dict[int, int] = {}
        self._in_fit = False
        self._since = (0.0, 0.0)
        self._watcher: threading.Thread | None = None

    def watch(self, keras: Any) -> None:
        """For the rest of the process."""
        remember_compile()
        if keras.backend.backend() not in ("tensorflow", "jax"):
            return
        fits, model = self, keras.Model
        fit, train_on_batch, evaluate = model.fit, model.train_on_batch, model.evaluate
        arguments = inspect.signature(fit)

        def make_train_function(self: Any, force: bool = False) -> None:
            self.train_function = lambda *given: fits._step(keras, self, *given)

        def fit_until_first_step(self: Any, x: Any = None, *args: Any, **kwargs: Any) -> Any:
            fits._data, fits._in_fit = x, True
            try:
                return fit(self, x, *args, **kwargs)
            except Stopped:
                if fits._validate:
                    given = arguments.bind(self, x, *args, **kwargs)
                    given.apply_defaults()
                    fits._follow_validation(keras, self, given.arguments, evaluate)
                return _make_history(keras, self)
            finally:
                fits._in_fit = False

        def make_test_function(self: Any, force: bool = False) -> None:
            self.test_function = lambda *given: fits._test(keras, self, given[-1])

        def batch_after_batch(self: Any, *args: Any, **kwargs: Any) -> Any:
            fits._count(self)
            return train_on_batch(self, *args, **kwargs)

        patch.object(model, "make_train_function", make_train_function).start()
        patch.object(model, "fit", fit_until_first_step).start()
        if self._validate:
            make_really = model.make_test_function
            patch.object(
                model,
                "make_test_function",
                lambda self, force=False: (make_test_function if fits._in_fit else make_really)(self, force),
            ).start()
        patch.object(model, "train_on_batch", batch_after_batch).start()
        for name in ("evaluate", "predict"):
            patch.object(model, name, self._after_training(getattr(model, name), name)).start()

    def _count(self, model: Any) -> None:
        """Several models may be trained in turn (GANs): enough was seen when one comes for the third time after all
        others, or very often."""
        self._calls[id(model)] = calls = self._calls.get(id(model), 0) + 1
        others = [count for key, count in self._calls.items() if key != id(model)]
        if calls > MOST or (calls > 2 and others and min(others) > 1):
            self._finish()

    def _after_training(self, method: Callable[..., Any], name: str) -> Callable[..., Any]:
        def stand_in(model: Any, *args: Any, **kwargs: Any) -> Any:
            if not self._calls:
                return method(model, *args, **kwargs)
            if name == "predict":  # its results may go anywhere
                self._finish()
            names = model.metrics_names
            results = dict.fromkeys(names, 0.5) if kwargs.get("return_dict") else [0.5] * len(names)
            return results if len(names) > 1 or kwargs.get("return_dict") else 0.5

        return stand_in

    def _step(self, keras: Any, model: Any, *given: Any) -> Any:
        """Stands for the function that Keras trains with: given its batches, and on JAX the model's state before."""
        batches = given[-1]
        if self._in_fit or self._calls.get(id(model), 0) <= 1:
            if not self._calls or self._in_fit:
                self._calls.setdefault(id(model), 1)
            x, y, weights = keras.utils.unpack_x_y_sample_weight(next(iter(batches)))
            self.hands_off(True)
            try:
                self._trained = self._trace(keras, model, keras.utils.pack_x_y_sample_weight(x, y, weights))
                if not (self._validate and self._in_fit):
                    self._keep(self._trained)
            finally:
                self.hands_off(False)
            if self._in_fit:
                self._since = time.process_time(), time.monotonic()
                if self._watcher is None:
                    self._watcher = threading.Thread(target=self._end_in_time, daemon=True)
                    self._watcher.start()
                if len(given) > 1:
                    _give_back(model, given[0])
                raise Stopped
        logs = dict.fromkeys(model.metrics_names, 0.5)
        return logs if keras.backend.backend() == "tensorflow" else (logs, _jax_state(model))

    def _follow_validation(
        self, keras: Any, model: Any, given: Mapping[str, Any], evaluate: Callable[..., Any]
    ) -> None:
        """Begins evaluate as fit would, which leads to ``_test``."""
        assert self._trained is not None
        data = _validation_data(keras, given)
        if data is None:
            note = "--validate: this fit has neither validation_data nor validation_split, so there is none"
            self._keep(_with_note(self._trained, note))
            return
        x, y, weights = keras.utils.unpack_x_y_sample_weight(data)
        batch = given.get("validation_batch_size") or given.get("batch_size")
        steps = given.get("validation_steps")
        with suppress(Stopped):
            evaluate(model, x=x, y=y, sample_weight=weights, batch_size=batch, steps=steps, verbose=0)

    def _test(self, keras: Any, model: Any, batches: Any) -> Any:
        """Stands for the function that Keras evaluates with."""
        assert self._trained is not None
        x, y, weights = keras.utils.unpack_x_y_sample_weight(next(iter(batches)))
        self.hands_off(True)
        try:
            found = self._trace(keras, model, keras.utils.pack_x_y_sample_weight(x, y, weights), validates=True)
        finally:
            self.hands_off(False)
        trained, between = (each.peak().bytes / 2**30 for each in (self._trained, found))
        note = f"validation was traced too: {between:.2f} GiB of tensors at its peak, {trained:.2f} in training"
        most = _with_note(max(self._trained, found, key=lambda each: int(each.peak().bytes)), note)
        self._keep(replace(most, about=replace(most.about, validated=True)))
        raise Stopped

    def _end_in_time(self) -> None:
        """Ends a script that goes on for long without another fit."""
        while True:
            time.sleep(0.5)
            work, clock = self._since
            if not self._in_fit and (time.process_time() - work > GRACE or time.monotonic() - clock > LONGEST):
                self._finish()

    def _trace(self, keras: Any, model: Any, data: Any, validates: bool = False) -> Timeline:
        data = data if isinstance(data, tuple) else (data,)
        batch = keras.tree.map_structure(lambda each: _shape_of(keras, each), data)
        backend = keras.backend.backend()
        settings = Settings({"backend": backend, "jit_compile": self._jit_compile})
        way = XlaChoice(None, ()) if self._dialect == "cpu" else way_of(model, settings, self._device)
        known = describe_loss(model, About(settings=Settings(self.runtime)))
        line = f"the {'validation' if validates else 'step'} of fit: {user_line_now()}"
        notes = (line, *way.notes, *notes_of(model, settings, (), backend))
        about = replace(known, **{**self._describe_data(), "notes": notes, "details": {"steps": 1}})
        if backend == "jax":
            from oomproof.trace.keras.on_jax import trace_on_jax

            assert way.target is not None
            return trace_on_jax(model, batch, way.target, about=about, validates=validates, progress=self._say)
        import tensorflow as tf

        specs = keras.tree.map_structure(lambda part: tf.TensorSpec(part.shape, part.dtype), batch)
        if way.target is not None and not validates:
            from oomproof.trace.keras.on_xla import trace_with_xla

            return trace_with_xla(model, specs, way.target, about=about, progress=self._say)
        from oomproof.trace.keras.on_tensorflow import trace_keras

        number = self._device.capability if self._device and self._device.capability != (0, 0) else (8, 0)
        capability = ".".join(map(str, number))
        how: dict[str, Any] = {
            "dialect": self._dialect,
            "capability": capability,
            "about": about,
            "progress": self._say,
        }
        if validates:
            from oomproof.trace.keras.validation import trace_test_step

            step = trace_test_step(model, specs, **how)
            return _with_note(step, _WITHOUT_XLA) if way.target is not None else step
        return trace_keras(model, specs, **how)

    def _describe_data(self) -> dict[str, Any]:
        """What a tf.data pipeline keeps in host RAM; nothing where it cannot be told."""
        if not hasattr(self._data, "element_spec"):
            return {}
        from oomproof.data.pipeline.describe import describe_pipeline, pipeline_of_data

        with suppress(OomproofError):
            pipeline = pipeline_of_data(self._data)
            if pipeline is not None:
                return {name: value for name, value in describe_pipeline(pipeline).items() if name != "notes"}
        return {}


_WITHOUT_XLA = "validation is forecast as it runs without XLA"


def _with_note(step: Timeline, note: str) -> Timeline:
    return replace(step, about=replace(step.about, notes=(*step.about.notes, note)))


def _validation_data(keras: Any, given: Mapping[str, Any]) -> Any:
    """What fit would evaluate with; None where it does not."""
    if given.get("validation_data") is not None:
        return given["validation_data"]
    split = given.get("validation_split") or 0.0
    if not split:
        return None
    parts = (given["x"], given.get("y"), given.get("sample_weight"))

    def last(array: Any) -> Any:
        return array[len(array) - max(1, int(len(array) * split)) :]

    return tuple(None if part is None else keras.tree.map_structure(last, part) for part in parts)


class _MadeUp(dict[str, list[float]]):
    """A history with numbers for every metric that is asked for."""

    def __missing__(self, name: str) -> list[float]:
        return [0.5]


def _make_history(keras: Any, model: Any) -> Any:
    history = keras.callbacks.History()
    names = [name for metric in model.metrics_names for name in (metric, f"val_{metric}")]
    history.history = _MadeUp({name: [0.5] for name in names})
    history.epoch = [0]
    history.set_model(model)
    return history


def _shape_of(keras: Any, part: Any) -> Any:
    import numpy as np

    tensor = part if hasattr(part, "shape") and hasattr(part, "dtype") else np.asarray(part)
    return keras.KerasTensor(
        tuple(int(side) for side in tensor.shape), dtype=keras.backend.standardize_dtype(tensor.dtype)
    )


def _jax_state(model: Any) -> Any:
    """What Keras's loop on JAX gets back beside the logs: the state as it was."""
    return tuple([each.value for each in group] for group in _groups(model))


def _give_back(model: Any, state: Any) -> None:
    """While fit runs on JAX, Keras takes the values out of the model's variables (Keras 3.15): whoever leaves it in the
    middle has to put them back."""
    for group, values in zip(_groups(model), state, strict=True):
        for variable, value in zip(group, values, strict=True):
            variable.assign(value)


def _groups(model: Any) -> tuple[Any, ...]:
    return (
        model.trainable_variables,
        model.non_trainable_variables,
        model.optimizer.variables,
        model.metrics_variables,
    )
