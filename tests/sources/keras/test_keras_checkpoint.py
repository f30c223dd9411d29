"""Plans for Keras jobs that compute blocks again."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("tensorflow", reason="Keras jobs need TensorFlow: pip install 'oomproof[tensorflow]'")
import keras
from keras import layers

import oomproof
from oomproof.memory.timeline import PHASES
from oomproof.sources.keras.job import KerasJob
from oomproof.sources.settings import resolve
from oomproof.trace.request import TraceRequest


def residual() -> Any:
    x = entry = keras.Input((128, 128, 3))
    x = layers.Conv2D(32, 3, padding="same")(x)
    for number in range(4):
        y = x
        for _ in range(2):
            y = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(32, 3, padding="same")(y)))
        x = layers.Add(name=f"add{number}")([x, y])
    model = keras.Model(entry, layers.Dense(5)(layers.GlobalAveragePooling2D()(x)))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), loss, jit_compile=False)
    return model


@pytest.mark.thorough
@pytest.mark.slow
def test_a_plan_with_the_same_gradients_computes_blocks_again() -> None:
    job = KerasJob(residual(), batch=64)
    plan = oomproof.fit(job, on="4GiB", keep="identical")
    assert plan.fits and not plan.before.fits
    assert plan.promise == "identical"  # batch normalisation leaves micro-batches no more than equivalent
    assert plan.settings["batch"] == 64
    chosen = plan.settings["checkpoint"].split(",")
    assert chosen and set(chosen) <= {f"add{number}" for number in range(4)}
    assert 1.03 < plan.time < 1.5  # part of a forward pass more


@pytest.mark.slow
def test_blocks_are_known_from_a_trace() -> None:
    job = KerasJob(residual(), batch=4)
    settings = resolve(job, {})
    step = job.trace(TraceRequest(settings))
    assert [call.path for call in step.modules] == [f"add{number}" for number in range(4)]
    assert step.about.blocks == 4
    tensor = 4 * 128 * 128 * 32 * 4
    for call in step.modules:
        assert call.enter < call.leave and call.repeatable
        assert step.phase_at(call.leave) == "forward"
        assert step.bytes[list(call.outputs)].tolist() == [tensor]
    assert "checkpoint" in [knob.name for knob in job.knobs(settings, step.about)]
    again = job.trace(TraceRequest(settings.with_values({"checkpoint": "all"})))
    assert again.peak().bytes < 0.75 * step.peak().bytes
    work, plain = again.work, step.work
    backward = PHASES.index("backward")
    assert work.flops[work.phase == backward].sum() > 1.3 * plain.flops[plain.phase == backward].sum()
