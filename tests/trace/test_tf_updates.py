"""Fused normalisation, optimizers' kernels and the variables of TensorFlow 1, in steps without Keras."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("tensorflow", reason="TensorFlow is not installed")

import tensorflow as tf
from real_tf import measure

from oomproof.errors import JobError
from oomproof.memory.timeline import Timeline
from oomproof.trace.tensorflow import trace_step
from oomproof.trace.tensorflow.graph.capture import Captured
from oomproof.trace.tensorflow.graph.session_graph import capture_session
from oomproof.trace.tensorflow.sizes.bounds import bound_reserves
from oomproof.trace.tensorflow.trace_step import PreparedStep, find_measured_order, lay_out_step, prepare_step

MIB = 1 << 20
SIDE = 512  # a square matrix of floats takes 1 MiB
IMAGES = (8, 64, 64, 32)  # 4 MiB


def held_before(step: PreparedStep) -> int:
    """Variables, inputs and constants."""
    constants = sum(node.outputs[0].bytes for node in step.graph.nodes if node.op == "Const")
    given = sum(step.graph.nodes[number].outputs[0].bytes for number in step.graph.arguments)
    return constants + given + sum(variable.bytes for variable in step.captured.variables)


def normalised_step(scale: Any) -> Any:
    offset = tf.Variable(tf.zeros([32]))

    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.constant(0.0)
            for _ in range(4):
                x = tf.compat.v1.nn.fused_batch_norm(x, scale, offset, is_training=True)[0]
                loss += tf.reduce_sum(x * x)
        scale.assign_sub(0.1 * tape.gradient(loss, scale))
        return loss

    return step


def test_fused_normalisation_keeps_one_number_for_its_gradient() -> None:
    """It was counted as large as its input, since its shape is not in the graph."""
    step = tf.function(normalised_step(tf.Variable(tf.ones([32]))))
    x = tf.random.normal(IMAGES)
    ready = prepare_step(step, (x,), dialect="cpu")
    assert ready.guessed == 0
    norms = [node for node in ready.graph.nodes if node.op == "FusedBatchNormV3"]
    assert len(norms) == 4
    assert {node.outputs[5].bytes for node in norms} == {4}
    run = step.get_concrete_function(tf.TensorSpec(IMAGES))
    real = measure(lambda: run(x))
    assert max(real.outputs[node.name] for node in norms) < 4 * MIB + 4096
    replayed = lay_out_step(ready, find_measured_order(ready, real.order), "cpu").peak().bytes
    assert replayed == pytest.approx(real.without_scratch + held_before(ready), rel=0.005)


def test_the_most_that_cudnn_reserves_is_a_bit_for_each_element() -> None:
    def bound(shape: tuple[int, ...], share: float) -> tuple[tuple[int, ...], ...]:
        return bound_reserves("FusedBatchNormV3", shape, share, {}, ())

    assert bound((2, 3, 3, 32), 0.5) == ((),)
    assert bound((2, 3, 3, 32), 1.0) == ((18,),)
    assert bound((1, 1, 1, 3), 1.0) == ((1,),)


def test_fused_normalisation_of_unknown_size_follows_its_input() -> None:
    whole = normalised_step(tf.Variable(tf.ones([32])))

    def step(x: Any) -> Any:
        return whole(tf.boolean_mask(x, x[:, 0, 0, 0] > 0))

    ready = prepare_step(step, (tf.TensorSpec(IMAGES),), dialect="cpu")
    [first, *_] = [node for node in ready.graph.nodes if node.op == "FusedBatchNormV3"]
    assert first.outputs[0].shape == (4, 64, 64, 32)
    assert first.outputs[5].bytes == 4
    assert ready.largest is not None
    [first, *_] = [node for node in ready.largest.graph.nodes if node.op == "FusedBatchNormV3"]
    assert first.outputs[5].bytes == first.outputs[0].bytes // 32


# -- optimizers' kernels


def weight_and_slot() -> tuple[Any, Any]:
    return tf.Variable(tf.zeros((SIDE, SIDE))), tf.Variable(tf.zeros((SIDE, SIDE)), trainable=False)


def momentum_step(weight: Any, slot: Any, *, read_late: bool = False) -> Any:
    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.nn.relu(x @ weight))
        gradient = tape.gradient(loss, weight)
        old = weight.read_value()
        tf.raw_ops.ResourceApplyMomentum(
            var=weight.handle, accum=slot.handle, lr=0.1, grad=gradient, momentum=0.9, use_nesterov=False
        )
        return tf.reduce_sum(old - weight.read_value()) if read_late else loss

    return step


def test_slots_that_only_a_kernel_knows_are_optimizer_state() -> None:
    """Nothing reads them, so TensorFlow does not list them among the variables of the step."""
    weight, slot = weight_and_slot()
    timeline = trace_step(momentum_step(weight, slot), (tf.TensorSpec((SIDE, SIDE)),), dialect="cpu")
    kinds = timeline.by_kind(timeline.peak().tick)
    assert kinds["parameter"] == MIB
    assert kinds["optimizer"] == MIB


def test_a_weight_that_is_still_read_is_copied_before_its_update() -> None:
    weight, slot = weight_and_slot()
    x = tf.random.normal((SIDE, SIDE))
    step = tf.function(momentum_step(weight, slot, read_late=True))
    ready = prepare_step(step, (x,), dialect="cpu")
    run = step.get_concrete_function(tf.TensorSpec((SIDE, SIDE)))
    real = measure(lambda: run(x))
    assert real.outputs.get("ResourceApplyMomentum", real.scratch.get("ResourceApplyMomentum", 0)) == MIB
    timeline = lay_out_step(ready, find_measured_order(ready, real.order), "cpu")
    assert timeline.peak().bytes == pytest.approx(real.without_scratch + held_before(ready), rel=0.01)


# -- TensorFlow 1


def session_step(*, resources: bool, loop: bool = False) -> tuple[Captured, Any]:
    v1 = tf.compat.v1
    graph = tf.Graph()
    with graph.as_default():
        x = v1.placeholder(tf.float32, (SIDE, SIDE), name="x")
        with v1.variable_scope("net", use_resource=resources):
            weight = v1.get_variable("weight", (SIDE, SIDE))
        y = x @ weight
        if loop:
            y = v1.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y @ weight), (0, y))[1]
        loss = tf.reduce_sum(tf.nn.relu(y))
        update = v1.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
        return capture_session(graph, [update], [loss], [x]), (graph, update, loss, x)


@pytest.mark.parametrize("resources", [True, False], ids=["resource variables", "ref variables"])
def test_graphs_of_tensorflow_1(resources: bool) -> None:
    """A variable that is not a resource was taken for something that is computed in every step."""
    captured, _ = session_step(resources=resources)
    timeline = trace_step(captured, dialect="cpu")
    kinds = timeline.by_kind(timeline.peak().tick)
    assert kinds["parameter"] == kinds["optimizer"] == kinds["input"] == MIB
    assert owners_of(timeline, "optimizer") == {"net"}
    # What is left is the weight, its momentum and the gradient of the sum, which is a constant.
    assert timeline.curve()[-1] == pytest.approx(3 * MIB, rel=0.01)


def owners_of(timeline: Timeline, kind: str) -> set[str]:
    from oomproof.memory.timeline import KINDS

    return {
        timeline.owners[owner]
        for owner, its_kind in zip(timeline.owner, timeline.kind, strict=True)
        if its_kind == KINDS.index(kind)
    }


def test_loops_that_go_round_in_the_graph_are_refused() -> None:
    v1 = tf.compat.v1
    v1.disable_control_flow_v2()
    try:
        with pytest.raises(JobError, match="enable_control_flow_v2"):
            session_step(resources=True, loop=True)
    finally:
        v1.enable_control_flow_v2()
    captured, _ = session_step(resources=True, loop=True)
    assert trace_step(captured, dialect="cpu").peak().bytes > 4 * MIB
