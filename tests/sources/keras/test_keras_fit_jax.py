"""Plans for Keras on JAX: each trace is a run of XLA's compiler in a child process."""

from __future__ import annotations

import pytest

from oomproof.planning import fit
from oomproof.trace.xla.installed import xla_installed

pytest.importorskip("tensorflow", reason="TensorFlow is not installed")

import keras


@pytest.mark.slow
@pytest.mark.skipif(not xla_installed(), reason="needs oomproof[xla]")
def test_a_small_model_is_planned_on_jax() -> None:
    model = keras.Sequential([keras.Input((32,)), keras.layers.Dense(64, activation="relu"), keras.layers.Dense(4)])
    model.compile("sgd", "mse")
    plan = fit(model, on="2GiB", batch=8, backend="jax")
    assert plan.fits and plan.after.allocated.expected > 0
    assert plan.settings["backend"] == "jax" and plan.settings["batch"] == 8
    assert any("Keras on JAX compiles the step with XLA" in note for note in plan.after.notes)
