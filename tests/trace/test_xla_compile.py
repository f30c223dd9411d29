"""Real runs of XLA's GPU compiler, without a GPU: a small CNN for a described card."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from oomproof.errors import InputError, JobError
from oomproof.memory.cards.devices import find_device
from oomproof.memory.timeline import Timeline
from oomproof.trace.xla import compiler, installed
from oomproof.trace.xla.compiler import compile_step
from oomproof.trace.xla.targets import target_for

pytest.importorskip("tensorflow")

import keras
import tensorflow as tf
from keras_nets import three_layers

CARD = target_for(find_device("RTX 3060"))
compiling = pytest.mark.skipif(not installed.is_xla_installed(), reason="needs oomproof[xla]")


@pytest.fixture(autouse=True)
def nothing_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    compiler._kept.clear()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    yield
    assert not _children()


def _children() -> list[psutil.Process]:
    """Those that still run; one that has ended and that nobody has asked about yet is none of them."""
    found = [each for each in psutil.Process().children() if each.status() != psutil.STATUS_ZOMBIE]
    return [each for each in found if "oomproof.trace.xla.child" in each.cmdline()]


def traced(backend: Any) -> Timeline:
    from oomproof.trace.keras.on_xla import trace_with_xla

    model, batch = three_layers(8)
    specs = tf.nest.map_structure(lambda tensor: tf.TensorSpec(tensor.shape, tensor.dtype), batch)
    return trace_with_xla(model, specs, CARD, backend=backend)


@pytest.mark.thorough
@compiling
@pytest.mark.slow
def test_tensorflow_and_jax_give_the_compiler_the_same_step() -> None:
    on_tensorflow, on_jax = traced("tensorflow"), traced("jax")
    for step in (on_tensorflow, on_jax):
        sizes = step.about.details["xla_bytes"]
        whole = sizes["argument"] + sizes["output"] - sizes["alias"] + sizes["temp"]
        assert step.peak().bytes == pytest.approx(whole, rel=1e-4)
        kinds = step.by_kind(step.peak().tick)
        assert kinds["parameter"] == 4 * (448 + 4640 + 18496 + 650)
        assert kinds["optimizer"] == pytest.approx(2 * kinds["parameter"], abs=16)
        assert kinds["input"] == 8 * 256 * 256 * 3 * 4 + 8 * 4
        assert kinds["activation"] > 0.8 * sizes["temp"]  # at the peak, most is kept from forward
        assert len(step.calls) == 2 * (3 + 3 + 2)  # forward, to the filters, to the inputs but the first
        assert {"forward", "backward", "optimizer"} <= set(step.by_phase())
    assert on_jax.peak().bytes == pytest.approx(on_tensorflow.peak().bytes, rel=0.02)
    assert (on_tensorflow.about.limits, on_jax.about.limits) == ("tensorflow", "jax")


def test_what_the_step_itself_raises_is_not_put_down_to_xla() -> None:
    from oomproof.trace.keras.on_xla import trace_with_xla

    class Choosy(keras.Sequential):
        def train_step(self, data: Any) -> Any:
            raise ValueError("two boxes at least")

    model = Choosy([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    with pytest.raises(ValueError, match="two boxes at least") as raised:
        trace_with_xla(model, (tf.TensorSpec((2, 4)), tf.TensorSpec((2, 1))), CARD)
    assert "XLA" not in str(raised.value)


def test_a_step_that_takes_a_dict_is_handed_to_xla() -> None:
    """Boxes and labels come as a dict in KerasHub's detectors."""
    from oomproof.trace.keras.on_tensorflow import build_variables
    from oomproof.trace.keras.on_xla import _lower_step

    x, extra = keras.Input((4,), name="x"), keras.Input((4,), name="extra")
    model = keras.Model({"x": x, "extra": extra}, keras.layers.Dense(1)(keras.layers.add([x, extra])))
    model.compile("sgd", "mse")
    batch = {"x": tf.TensorSpec((2, 4)), "extra": tf.TensorSpec((2, 4))}, tf.TensorSpec((2, 1))
    build_variables(model, batch)
    module, roles, _ = _lower_step(model, batch)
    assert module and [kind for kind, _ in roles].count("input") == 3


@compiling
def test_what_was_compiled_is_not_compiled_again_by_the_next_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "_ask", lambda *given: ({"sizes": {"temp": 1}, "version": "0"}, b"a plan"))
    first = compile_step({}, CARD, hlo=b"a program")
    custom = compile_step({"modules": ["layers.py"]}, CARD)
    assert first == custom
    compiler._kept.clear()  # as another process would begin
    monkeypatch.setattr(compiler, "_ask", lambda *given: pytest.fail("asked again"))
    assert compile_step({}, CARD, hlo=b"a program") == first
    with pytest.raises(pytest.fail.Exception, match="asked again"):
        compile_step({}, CARD, hlo=b"another program")
    with pytest.raises(pytest.fail.Exception, match="asked again"):
        compile_step({"modules": ["layers.py"]}, CARD)  # the user's own code may have changed


LOWERING = """
import hashlib, sys
import keras, tensorflow as tf
from oomproof.trace.keras.on_tensorflow import build_variables
from oomproof.trace.keras.on_xla import _lower_step
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, activation="relu"), keras.layers.Dense(1)])
model.compile("adam", "mse")
batch = tf.TensorSpec((2, 4)), tf.TensorSpec((2, 1))
build_variables(model, batch)
print(hashlib.sha256(_lower_step(model, batch)[0]).hexdigest())
"""


@pytest.mark.thorough
@pytest.mark.slow
def test_the_same_step_is_the_same_bytes_in_every_process() -> None:
    seen = set()
    for seed in ("1", "2"):
        ran = subprocess.run(
            [sys.executable, "-c", LOWERING],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        seen.add(ran.stdout.split()[-1])
    assert len(seen) == 1


@compiling
@pytest.mark.slow
def test_what_is_no_program_is_told_in_one_line() -> None:
    with pytest.raises(JobError, match=r"XLA.*--set jit_compile=false") as told:
        compile_step({}, CARD, hlo=b"no program")
    assert "\n" not in str(told.value)


@compiling
def test_a_child_that_dies_is_told_in_one_line() -> None:
    def killing(text: str) -> None:
        for child in _children():
            os.kill(child.pid, signal.SIGKILL)

    with pytest.raises(JobError, match=r"ended without an answer.*--set jit_compile=false") as told:
        compile_step({}, CARD, hlo=b"no program", progress=killing)
    assert "\n" not in str(told.value)


@compiling
def test_an_interrupt_ends_the_child() -> None:
    def interrupting(text: str) -> None:
        assert _children()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compile_step({}, CARD, hlo=b"no program", progress=interrupting)
    assert not _children()


def test_without_the_extra_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "NEEDED", ("no-such-package",))
    with pytest.raises(InputError, match=r"no-such-package not installed here.*pip install 'oomproof\[xla\]'"):
        compile_step({}, CARD, hlo=b"no program")
