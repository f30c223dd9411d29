"""``model.fit(ds, callbacks=[oomproof.keras.Guard()])``: memory of every batch, and an end that says what to do.

Keras runs a step as one graph, in which some weights may be updated before the operation that runs out of memory. So
this guard does not go on: it watches for leaks, and when memory runs out it stops with the change to make.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import keras

from oomproof.errors import OutOfMemory
from oomproof.run.monitor.monitor import Monitor
from oomproof.run.monitor.verdict import Verdict

LOG = logging.getLogger("oomproof.guard")
EVERY = 50
"""batches between two looks at the trend"""
_ENDS = ("ResourceExhaustedError", "OutOfMemoryError", "MemoryError", "XlaRuntimeError")


class Guard(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
    """``log``: a file for lines of JSON. ``limit``: bytes of host RAM at which the training would die."""

    def __init__(self, log: str | Path | None = None, limit: int | None = None) -> None:
        super().__init__()
        self._log, self._limit = log, limit
        self._said = ""
        self.monitor: Monitor | None = None

    def on_train_begin(self, logs: Any = None) -> None:
        self.monitor = Monitor(self._log, host_limit=self._limit)
        make = self.model.make_train_function
        model = self.model

        def guarded_make(*given: Any, **named: Any) -> Any:
            made = make(*given, **named)
            plain = model.train_function
            if plain is not None and not getattr(plain, "oomproof", False):
                model.train_function = _explaining(plain)
            return made

        # fit() has made its train function before it calls this; later ones come by make_train_function.
        self.model.make_train_function = guarded_make
        if getattr(self.model, "train_function", None) is not None:
            self.model.train_function = _explaining(self.model.train_function)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        assert self.monitor is not None
        self.monitor.step()
        if batch % EVERY == EVERY - 1:
            self._tell(self.monitor.verdict())

    def on_train_end(self, logs: Any = None) -> None:
        self.model.__dict__.pop("make_train_function", None)
        if self.monitor is not None:
            LOG.info(self.monitor.close())

    def _tell(self, found: Verdict) -> None:
        if found.kind in ("leak", "spike") and found.kind != self._said:
            self._said = found.kind
            LOG.warning(f"{found.kind}: {found.why}")


def _explaining(plain: Any) -> Any:
    """The same function; where memory runs out, its error says what to change."""

    def train_function(iterator: Any) -> Any:
        try:
            return plain(iterator)
        except Exception as error:
            if type(error).__name__ not in _ENDS or ("emory" not in str(error) and "OOM" not in str(error)):
                raise
            first = str(error).strip().splitlines()[0][:200]
            raise OutOfMemory(
                f"this batch does not fit: {first}. Next: model = oomproof.keras.apply(model, {{'accumulate': 2}}) "
                "with batches of half the size; weights may be those of an unfinished step, so go on from a checkpoint"
            ) from error

    train_function.oomproof = True  # type: ignore[attr-defined]  # a mark that it is guarded already
    return train_function
