"""Plans for Keras on JAX: each trace is a run of XLA's compiler in a child process."""

from __future__ import annotations

import pytest

from oomproof.api.fit import fit
from oomproof.memory.cards.devices import find_device
from oomproof.plan.tracing import Tracing
from oomproof.sources import as_job
from oomproof.sources.settings import resolve
from oomproof.trace.xla.installed import is_xla_installed

pytest.importorskip("tensorflow", reason="TensorFlow is not installed")

import keras

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not is_xla_installed(), reason="needs oomproof[xla]")]


def small() -> keras.Model:
    model = keras.Sequential([keras.Input((32,)), keras.layers.Dense(64, activation="relu"), keras.layers.Dense(4)])
    model.compile("sgd", "mse")
    return model


@pytest.mark.thorough
def test_time_is_that_of_the_operations_one_by_one() -> None:
    job = as_job(small())
    tracing = Tracing(job, find_device("2GiB"), lambda doing, done: None)
    compiled, _ = tracing.trace(resolve(job, {"batch": 8, "backend": "jax"}), "tracing")
    plain, _ = tracing.trace(resolve(job, {"batch": 8, "backend": "tensorflow", "jit_compile": "false"}), "tracing")
    assert "compiled by the XLA" in compiled.about.framework
    assert compiled.work.flops.sum() == plain.work.flops.sum() > 0


@pytest.mark.thorough
def test_a_small_model_is_planned_on_jax() -> None:
    model = small()
    plan = fit(model, on="2GiB", batch=8, backend="jax")
    assert plan.fits and plan.after.allocated.expected > 0
    assert plan.settings["backend"] == "jax" and plan.settings["batch"] == 8
    assert any("Keras on JAX compiles the step with XLA" in note for note in plan.after.notes)
