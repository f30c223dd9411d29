"""oomproof.keras.Guard: a training in Keras that is watched, and that stops with what to do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import oomproof
from oomproof.errors import OutOfMemory

keras = pytest.importorskip("keras")
pytestmark = pytest.mark.slow


def model() -> keras.Model:
    built = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(3)])
    built.compile("sgd", "mse")
    return built


def test_every_batch_is_in_the_log(tmp_path: Path) -> None:
    log = tmp_path / "memory.jsonl"
    guard = oomproof.keras.Guard(log=log)
    model().fit(np.zeros((64, 4)), np.zeros((64, 3)), batch_size=2, epochs=2, verbose=0, callbacks=[guard])
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["step"] for line in lines[:-1]] == list(range(1, 65))
    assert lines[-1]["kind"] in ("steady", "short", "caching")


def test_a_batch_that_does_not_fit_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    import tensorflow as tf

    built = model()

    class Failing(keras.callbacks.Callback):
        """Before the guard in the list: what Keras calls is what has failed."""

        def on_train_begin(self, logs: object = None) -> None:
            def fail(iterator: object) -> None:
                raise tf.errors.ResourceExhaustedError(
                    None, None, "OOM when allocating tensor with shape[8,512,512,64]"
                )

            self.model.train_function = fail

    with pytest.raises(OutOfMemory, match=r"OOM when allocating.*oomproof.keras.apply.*from a checkpoint"):
        callbacks = [Failing(), oomproof.keras.Guard()]
        built.fit(np.zeros((8, 4)), np.zeros((8, 3)), verbose=0, callbacks=callbacks)


def test_a_step_that_is_traced_again_and_again_is_named(caplog: pytest.LogCaptureFixture) -> None:
    import tensorflow as tf

    class Retracing(keras.callbacks.Callback):
        """A Python number is another trace each time."""

        def on_train_begin(self, logs: object = None) -> None:
            plain = self.model.train_function
            numbers = iter(range(10_000))
            traced = tf.function(tf.constant)

            def train_function(iterator: object) -> object:
                traced(next(numbers))
                return plain(iterator)

            self.model.train_function = train_function

    data = np.zeros((64, 4)), np.zeros((64, 3))
    with caplog.at_level("WARNING", "oomproof.guard"):
        model().fit(*data, batch_size=7, epochs=3, verbose=0, callbacks=[oomproof.keras.Guard()])
        assert not caplog.messages
        callbacks = [Retracing(), oomproof.keras.Guard()]
        model().fit(*data, batch_size=2, epochs=2, verbose=0, callbacks=callbacks)
    said = [each.getMessage() for each in caplog.records if each.name == "oomproof.guard"]
    assert len(said) == 1 and "traced the training step 50 times in 50 steps" in said[0]


def test_other_errors_stay_what_they_are() -> None:
    with pytest.raises(Exception, match=r"(?i)shape|incompatible") as raised:
        model().fit(np.zeros((8, 5)), np.zeros((8, 3)), verbose=0, callbacks=[oomproof.keras.Guard()])
    assert not isinstance(raised.value, OutOfMemory)


TRAINING = """
import resource
import keras, numpy
import oomproof

layer = dict(kernel_size=3, padding="same", activation="relu")
model = keras.Sequential([
    keras.layers.Input((128, 128, 3)), keras.layers.Conv2D(64, **layer), keras.layers.Conv2D(64, **layer),
    keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(5),
])
model.compile("adam", "mse", jit_compile=False)
images, targets = numpy.zeros((256, 128, 128, 3), "float32"), numpy.zeros((256, 5), "float32")
model.fit(images[:4], targets[:4], verbose=0)
with open("/proc/self/status") as status:
    taken = 1024 * int(status.read().split("VmData:")[1].split()[0])
resource.setrlimit(resource.RLIMIT_DATA, (taken + (600 << 20),) * 2)
model.fit(images, targets, batch_size=256, verbose=0, callbacks=[oomproof.keras.Guard()])
"""


@pytest.mark.thorough
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere memory has no such limit")
@pytest.mark.parametrize(
    ("backend", "said"), [("tensorflow", "OOM when allocating tensor"), ("torch", "[enforce fail at alloc_cpu")]
)
def test_where_the_system_gives_no_more_memory(backend: str, said: str) -> None:
    environment = {**os.environ, "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", TRAINING], env=environment, capture_output=True, text=True, check=False
    )
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"oomproof.errors.OutOfMemory: this batch does not fit: {said}"), done.stderr[-2000:]
    assert "\x1b" not in last
    assert "oomproof.keras.apply(model, {'accumulate': 2})" in last
