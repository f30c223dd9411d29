"""Steps with tensors whose size the data decides on, against TensorFlow's own CPU allocator.

The upper figure must never be below, whatever the data; and where a mask leaves half, as is expected of it, every byte
must be there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("tensorflow", reason="TensorFlow is not installed")

import numpy as np
import tensorflow as tf
from real_tf import measure

from oomproof.memory import make_forecast as forecaster
from oomproof.memory.cards.devices import find_device
from oomproof.memory.forecast import Range
from oomproof.memory.runtime import Runtime
from oomproof.trace.tensorflow.trace_step import find_measured_order, lay_out_step, prepare_step, timeline_of

ROWS, SIDE = 4096, 256
Loss = Callable[[Any, Any, Any], Any]
LOSSES: dict[str, Loss] = {}
MASKED = "a mask in the loss"


def loss(name: str) -> Callable[[Loss], Loss]:
    def noted(function: Loss) -> Loss:
        LOSSES[name] = function
        return function

    return noted


@loss(MASKED)
def masked(w: Any, x: Any, mask: Any) -> Any:
    return tf.reduce_mean(tf.square(tf.boolean_mask(tf.nn.relu(x @ w), mask)) - 1.0)


@loss("two halves, put together again")
def recombined(w: Any, x: Any, mask: Any) -> Any:
    y = x @ w
    whole = tf.concat([tf.boolean_mask(y, mask), tf.boolean_mask(y, ~mask)], 0)
    return tf.reduce_mean(tf.tanh(tf.reshape(whole, [ROWS // 2, 2 * SIDE])))


@loss("where, gather and pad")
def gathered(w: Any, x: Any, mask: Any) -> Any:
    chosen = tf.gather(x @ w, tf.where(mask)[:, 0])
    kept = chosen[: tf.minimum(tf.shape(chosen)[0], ROWS // 2)]
    filled = tf.pad(kept, [[0, ROWS // 2 - tf.shape(kept)[0]], [0, 0]])
    count = tf.maximum(1, tf.reduce_sum(tf.cast(mask, tf.int32)))
    return tf.reduce_sum(tf.tanh(filled)) / tf.cast(count, tf.float32)


@loss("NMS")
def suppressed(w: Any, x: Any, mask: Any) -> Any:
    corner = x[:, :2] * 100
    keep = tf.image.non_max_suppression(tf.concat([corner, corner + 1], 1), x[:, 3], ROWS // 4, 0.99)
    return tf.reduce_mean(tf.nn.relu(tf.gather(x @ w, keep) @ w))


@loss("NMS in a loop of its own")
def suppressed_in_turns(w: Any, x: Any, mask: Any) -> Any:
    corner = x[:, :2] * 100
    keep, count = tf.image.non_max_suppression_padded(
        tf.concat([corner, corner + 1], 1), x[:, 3], ROWS // 4, 0.9, pad_to_max_output_size=True
    )
    return tf.reduce_mean(tf.tanh(tf.gather(x @ w, keep)[:count]))


@loss("as many rows as were counted")
def counted(w: Any, x: Any, mask: Any) -> Any:
    return tf.reduce_mean(tf.tanh(tf.gather(x @ w, tf.range(tf.reduce_sum(tf.cast(mask, tf.int32))))))


@loss("the largest, as many as were counted")
def largest(w: Any, x: Any, mask: Any) -> Any:
    y = x @ w
    count = tf.minimum(tf.reduce_sum(tf.cast(mask, tf.int32)), ROWS // 2)
    return tf.reduce_mean(tf.tanh(tf.gather(y, tf.math.top_k(y[:, 0], count).indices)))


@loss("parts, each with work of its own")
def parted(w: Any, x: Any, mask: Any) -> Any:
    part = tf.cast(mask, tf.int32)
    low, high = tf.dynamic_partition(x @ w, part, 2)
    places = tf.dynamic_partition(tf.range(ROWS), part, 2)
    return tf.reduce_mean(tf.dynamic_stitch(places, [tf.tanh(low), tf.sigmoid(high)]))


@loss("means over groups")
def grouped(w: Any, x: Any, mask: Any) -> Any:
    groups, place = tf.unique(tf.cast(tf.abs(x[:, 0] * 1000), tf.int32))
    return tf.reduce_mean(tf.tanh(tf.math.unsorted_segment_mean(x @ w, place, tf.shape(groups)[0])))


@loss("a mask under a condition")
def conditional(w: Any, x: Any, mask: Any) -> Any:
    y = x @ w
    chosen = tf.cond(tf.reduce_any(mask), lambda: tf.boolean_mask(y, mask), lambda: y[:1])
    return tf.reduce_mean(tf.tanh(chosen))


@loss("a mask for each image")
def mapped(w: Any, x: Any, mask: Any) -> Any:
    rows, masks = tf.reshape(x @ w, [8, ROWS // 8, SIDE]), tf.reshape(mask, [8, ROWS // 8])
    return tf.reduce_mean(
        tf.map_fn(
            lambda each: tf.reduce_sum(tf.tanh(tf.boolean_mask(each[0], each[1])), 0),
            (rows, masks),
            fn_output_signature=tf.float32,
        )
    )


@loss("a loop for each image, nothing unknown")
def mapped_whole(w: Any, x: Any, mask: Any) -> Any:
    rows = tf.reshape(x @ w, [8, ROWS // 8, SIDE])
    return tf.reduce_mean(tf.map_fn(lambda each: tf.reduce_mean(tf.tanh(each), 0), rows))


def told_and_real(loss: Loss, left: float) -> tuple[Range, int, int, list[str]]:
    """The forecast of a step, the same in the order that was measured, what it took where a mask leaves over so much,
    and what is said of it."""
    weight = tf.Variable(tf.random.stateless_normal((SIDE, SIDE), (0, 1)))

    def step(x: Any, mask: Any) -> Any:
        with tf.GradientTape() as tape:
            value = loss(weight, x, mask)
        weight.assign_sub(0.1 * tape.gradient(value, weight))
        return value

    batch = tf.random.stateless_normal((ROWS, SIDE), (0, 2)), tf.constant(np.arange(ROWS) < left * ROWS)
    ready = prepare_step(step, batch, dialect="cpu")
    run, graph = ready.captured.function, ready.graph
    measured = measure(lambda: run(*batch))
    real = measured.without_scratch
    real += sum(graph.nodes[number].outputs[0].bytes for number in graph.arguments)
    real += sum(node.outputs[0].bytes for node in graph.nodes if node.op == "Const")
    real += sum(variable.bytes for variable in ready.captured.variables)
    timeline = timeline_of(ready, "cpu")
    told = forecaster.build_forecast(timeline, find_device("64GiB"), Runtime(), "job", {}).allocated
    replayed = lay_out_step(ready, find_measured_order(ready, measured.order), "cpu").peak().bytes
    return told, replayed, real, [*timeline.about.notes, *timeline.about.not_counted]


@pytest.mark.slow
@pytest.mark.parametrize("left", [pytest.param(0.1, marks=pytest.mark.thorough), 1.0])
@pytest.mark.parametrize("name", LOSSES)
def test_the_upper_figure_holds_whatever_the_data(name: str, left: float) -> None:
    told, _, real, _ = told_and_real(LOSSES[name], left)
    assert told.high >= real
    assert 0.6 * real < told.expected < 1.8 * real


@pytest.mark.parametrize("name", [MASKED, "NMS", "where, gather and pad", "a loop for each image, nothing unknown"])
def test_every_byte_is_there_where_half_is_left(name: str) -> None:
    _, replayed, real, said = told_and_real(LOSSES[name], 0.5)
    assert replayed == pytest.approx(real, rel=0.01)
    assert any("depends on the data" in each for each in said)


def test_what_has_no_bound_is_told() -> None:
    """A number that the data holds, and no tensor has as many elements."""

    def repeated(w: Any, x: Any, mask: Any) -> Any:
        return tf.reduce_mean(tf.tile(x @ w, [tf.cast(tf.abs(x[0, 0]), tf.int32) + 1, 1]))

    told, _, _, said = told_and_real(repeated, 1.0)
    assert told.expected > ROWS * SIDE * 4
    assert any("no bound is known" in each and "Tile" in each for each in said)
