"""Runs a training script for real on the CPU and measures what TensorFlow's allocator hands out in one step.

    python real_tf_script.py ANSWER.json train_step script.py --batch-size 8      # the tf.function of that name
    python real_tf_script.py ANSWER.json fit:2 script.py                          # the step of its second fit

The step runs three times on its first batch, and the third is told of, as in tests/trace/real_tf.py.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import tensorflow as tf

sys.path.insert(0, str(Path(__file__).parents[2] / "trace"))
from real_tf import measure


class Enough(BaseException):
    """One step of a fit."""


def tell(answer: Path, step: Callable[[], Any], batch: Any) -> None:
    step()
    before = sum(
        each.shape.num_elements() * each.dtype.size
        for each in gc.get_objects()
        if isinstance(each, tf.Variable) and each.dtype.is_floating
    )
    before += sum(each.shape.num_elements() * each.dtype.size for each in tf.nest.flatten(batch) if tf.is_tensor(each))
    answer.write_text(json.dumps({"peak": measure(step).without_scratch + before}))
    os._exit(0)


def watch_function(answer: Path, name: str) -> None:
    kind = type(tf.function(lambda: None))
    call = kind.__call__

    def called(function: Any, *args: Any, **kwargs: Any) -> Any:
        if function.python_function.__name__ == name and tf.executing_eagerly():
            tell(answer, lambda: call(function, *args, **kwargs), (args, kwargs))
        return call(function, *args, **kwargs)

    patch.object(kind, "__call__", called).start()


def watch_fit(answer: Path, number: int) -> None:
    import keras

    made: list[Any] = []

    def make_train_function(model: Any, force: bool = False) -> None:
        made.append(model)

        def train(iterator: Any) -> Any:
            data = next(iter(iterator))
            function = tf.function(lambda *batch: model.train_step(batch), autograph=False)
            if len(made) == number:
                tell(answer, lambda: function(*data), data)
            function(*data)
            raise Enough

        model.train_function = train

    fit = keras.Model.fit

    def fit_once(model: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return fit(model, *args, **kwargs)
        except Enough:
            history = keras.callbacks.History()
            history.history, history.epoch = {"val_accuracy": [0.5]}, [0]
            return history

    patch.object(keras.Model, "make_train_function", make_train_function).start()
    patch.object(keras.Model, "fit", fit_once).start()
    patch.object(keras.Model, "evaluate", lambda *_, **__: [0.5, 0.5]).start()


def main(answer: Path, what: str, words: list[str]) -> None:
    if what.startswith("fit"):
        watch_fit(answer, int(what.partition(":")[2] or 1))
    else:
        watch_function(answer, what)
    sys.argv = words
    sys.path.insert(0, str(Path(words[0]).resolve().parent))
    runpy.run_path(words[0], run_name="__main__")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
