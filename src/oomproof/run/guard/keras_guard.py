"""``model.fit(ds, callbacks=[oomproof.keras.Guard()])``: memory of every batch, and an end that says what to do.

Keras runs a step as one graph, in which some weights may be updated before the operation that runs out of memory. So
this guard does not go on: it watches for leaks, and when memory runs out it stops with the change to make.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import keras

from oomproof.errors import OutOfMemory
from oomproof.frameworks.keras import count_traces
from oomproof.memory.forecast import Forecast
from oomproof.run.monitor.monitor import Monitor
from oomproof.run.monitor.watching import EVERY, Watch

USUAL_TRACES = 4
"""the first, one for a smaller last batch, and with shapes left open; the outer and the inner function count alike"""
_ENDS = (
    "ResourceExhaustedError",
    "OutOfMemoryError",
    "MemoryError",
    "XlaRuntimeError",
    "JaxRuntimeError",
    "RuntimeError",
)
"""of TensorFlow, JAX and PyTorch, which has RuntimeErrors on a CPU"""
_WORDS = re.compile(
    r"OOM when|out of memory|RESOURCE_EXHAUSTED|can't allocate memory|(?:Unable|failed) to allocate", re.IGNORECASE
)
_COLOURS = re.compile(r"\x1b\[[\d;]*m")


class Guard(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
    """``log``: a file for lines of JSON. ``limit``: bytes of host RAM at which the training would die. ``tensorboard``
    and ``forecast`` as for Monitor."""

    def __init__(
        self, log: str | Path | None = None, limit: int | None = None, tensorboard: Any = None,
        forecast: Forecast | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self._given = (log, limit, tensorboard, forecast)
        self._traces = 0
        self.watch: Watch | None = None

    @property
    def monitor(self) -> Monitor | None:
        return self.watch.monitor if self.watch is not None else None

    def on_train_begin(self, logs: Any = None) -> None:
        self.watch = Watch(*self._given)
        make = self.model.make_train_function
        model = self.model

        def make_guarded(*given: Any, **named: Any) -> Any:
            made = make(*given, **named)
            plain = model.train_function
            if plain is not None and not getattr(plain, "oomproof", False):
                model.train_function = _explain_failures(plain)
            return made

        # fit() has made its train function before it calls this; later ones come by make_train_function.
        self.model.make_train_function = make_guarded
        if getattr(self.model, "train_function", None) is not None:
            self.model.train_function = _explain_failures(self.model.train_function)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        assert self.watch is not None
        self.watch.step()
        if self.watch.steps % EVERY == 0:
            self._count_traces()

    def on_train_end(self, logs: Any = None) -> None:
        self.model.__dict__.pop("make_train_function", None)
        if self.watch is not None:
            self._count_traces()
            self.watch.end()

    def _count_traces(self) -> None:
        """A step that is traced again and again leaves a graph behind each time, in host RAM."""
        assert self.watch is not None
        before, self._traces = self._traces, count_traces(getattr(self.model, "train_function", None))
        if self._traces > max(before, USUAL_TRACES):
            self.watch.say_once(
                "traces",
                f"TensorFlow has traced the training step {self._traces} times in {self.watch.steps} steps, and keeps "
                "every graph: give batches of one shape (drop_remainder=True, padding) and tensors in place of Python "
                "numbers",
            )


def _explain_failures(plain: Any) -> Any:
    """The same function; where memory runs out, its error says what to change."""

    def train_function(iterator: Any) -> Any:
        try:
            return plain(iterator)
        except Exception as error:
            said = _find_line(error)
            if not said:
                raise
            raise OutOfMemory(
                f"this batch does not fit: {said}. Next: model = oomproof.keras.apply(model, {{'accumulate': 2}}) "
                "with batches of half the size; weights may be those of an unfinished step, so go on from a checkpoint"
            ) from error

    train_function.oomproof = True  # type: ignore[attr-defined]  # a mark that it is guarded already
    return train_function


def _find_line(error: Exception) -> str:
    """The line that says that memory ran out, which is not always the first; empty for other errors."""
    if type(error).__name__ not in _ENDS:
        return ""
    lines = [line.strip() for line in _COLOURS.sub("", str(error)).splitlines() if _WORDS.search(line)]
    return lines[0][:200] if lines else "MemoryError" * isinstance(error, MemoryError)
