"""A step of TensorFlow's as a job: from Python, and from a file with parameters."""

from __future__ import annotations

from pathlib import Path

import pytest

import oomproof

tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")

JOB = """
import oomproof
import tensorflow as tf


def job(batch=32, width=512):
    weight = tf.Variable(tf.zeros((width, width)))

    @tf.function
    def train_step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.nn.relu(x @ weight) ** 2)
        weight.assign_sub(0.1 * tape.gradient(loss, weight))
        return loss

    return oomproof.TensorFlowJob(train_step, lambda: (tf.TensorSpec((batch, width)),))
"""


def test_a_job_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text(JOB)
    name = f"{tmp_path / 'steps.py'}:job"
    few, many = (oomproof.check(name, on="T4", batch=batch) for batch in (1024, 4096))
    assert few.kinds["parameter"] == many.kinds["parameter"] == 512 * 512 * 4
    assert few.kinds["input"] == 1024 * 512 * 4
    assert many.allocated.expected > 2 * few.allocated.expected


def test_what_is_not_a_step() -> None:
    with pytest.raises(oomproof.InputError, match="must be a function"):
        oomproof.TensorFlowJob(3)  # type: ignore[arg-type]
    with pytest.raises(oomproof.JobError, match="no variable"):
        oomproof.check(oomproof.TensorFlowJob(tf.reduce_sum, tf.zeros((4, 4))), on="T4")


def test_what_the_step_raises_is_its_own() -> None:
    weight = tf.Variable(tf.zeros((4, 4)))
    with pytest.raises(oomproof.JobError, match="the job raised ValueError"):
        oomproof.check(oomproof.TensorFlowJob(lambda x: x @ weight, tf.TensorSpec((4, 5))), on="T4")
