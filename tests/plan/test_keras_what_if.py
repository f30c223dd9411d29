"""What-ifs of Keras steps against traces with the very setting."""

from __future__ import annotations

import pytest

from oomproof.memory.timeline import Timeline
from oomproof.plan.estimates import what_if
from oomproof.sources.job import TraceRequest
from oomproof.sources.settings import resolve

keras = pytest.importorskip("keras")
pytest.importorskip("tensorflow")


def traced(**settings: int) -> Timeline:
    from oomproof import KerasJob

    def model() -> object:
        layers = [keras.layers.Conv2D(16, 3, strides=4), keras.layers.Flatten(), keras.layers.Dense(2048)]
        net = keras.Sequential([keras.Input((32, 32, 3)), *layers, keras.layers.Dense(10)])
        net.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        return net

    job = KerasJob(model=model)
    return job.trace(TraceRequest(resolve(job, {"jit_compile": "false", **settings})))


def test_accumulated_gradients_have_a_place_of_their_own() -> None:
    plain, real = traced(batch=8), traced(batch=8, accumulate=4)
    estimate = what_if.accumulate_gradients(plain)
    assert estimate.peak().bytes == pytest.approx(real.peak().bytes, rel=0.03)
    assert real.peak().bytes > 1.15 * plain.peak().bytes  # or there would be nothing to see
    assert what_if.step_start(estimate) == what_if.step_start(plain)
    assert what_if.accumulate_gradients(real) is real
