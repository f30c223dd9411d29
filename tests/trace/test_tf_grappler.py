"""What TensorFlow's own optimizer makes of a step for a GPU that is not there."""

from __future__ import annotations

from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")

from oomproof.trace.tensorflow.graph import grappler  # noqa: E402
from oomproof.trace.tensorflow.graph.capture import capture  # noqa: E402

pytestmark = pytest.mark.slow


def large_step() -> Any:
    """Ten layers whose results, 4 GiB each, are all needed for the gradients."""
    weights = [tf.Variable(tf.ones((64, 64)), name=f"w{number}") for number in range(10)]

    def step(images: Any) -> Any:
        with tf.GradientTape() as tape:
            x = images
            for weight in weights:
                x = tf.nn.relu(tf.linalg.matmul(x, weight))
            loss = tf.reduce_sum(x)
        for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
            weight.assign_sub(0.1 * gradient)
        return loss

    return capture(step, (tf.TensorSpec((1 << 24, 64)),))


def swaps(definition: Any) -> int:
    return sum(node.op in ("_CopyFromGpuToHost", "_CopyFromHostToGpu") for node in definition.node)


def test_a_step_larger_than_any_card_is_not_copied_to_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    captured = large_step()
    assert swaps(grappler.run_grappler(captured, gpu=True)) == 0
    monkeypatch.setattr(grappler, "PLENTY", 16 << 30)
    assert swaps(grappler.run_grappler(captured, gpu=True)) > 0, "as it does for a GPU of 16 GiB"
