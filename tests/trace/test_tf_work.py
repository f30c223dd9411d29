"""The work of TensorFlow's operations: held against counts by hand and against TensorFlow's own profiler."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("tensorflow", reason="TensorFlow is not installed")

import keras
import numpy as np
import tensorflow as tf
from keras_nets import three_layers, unet

from oomproof.memory.activity import CONVOLUTION, DEPTHWISE, HALF, HALF_CONVOLUTION, PLAIN
from oomproof.memory.timeline import PHASES, Timeline
from oomproof.trace.keras.on_tensorflow import trace_keras
from oomproof.trace.tensorflow import trace_step
from oomproof.trace.tensorflow.graph.graph import Graph, Node, Output
from oomproof.trace.tensorflow.work import work_of


def flops(timeline: Timeline, phase: str) -> int:
    work = timeline.work
    return int(work.flops[work.phase == PHASES.index(phase)].sum())


def profiled(model: Any, images: Any) -> int:
    """Of a forward pass, as TensorFlow's profiler counts them."""
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2
    from tensorflow.python.profiler import model_analyzer, option_builder

    forward = tf.function(lambda x: model(x, training=False), autograph=False)
    concrete = forward.get_concrete_function(tf.TensorSpec(images.shape, images.dtype))
    graph = convert_variables_to_constants_v2(concrete).graph
    builder = option_builder.ProfileOptionBuilder
    options = builder(builder.float_operation()).with_empty_output().build()
    return int(model_analyzer.profile(graph, options=options).total_float_ops)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # the profiler is one of TensorFlow 1, and warns of it
@pytest.mark.parametrize("net", [three_layers, pytest.param(unet, marks=pytest.mark.thorough)])
def test_arithmetic_agrees_with_the_profiler(net: Any) -> None:
    model, batch = net()
    timeline = trace_keras(model, batch)
    forward, backward = flops(timeline, "forward"), flops(timeline, "backward")
    assert forward == pytest.approx(profiled(model, batch[0]), rel=0.02)  # which counts additions of biases too
    # Two products for each of the forward pass, but for the first layer, whose input needs no gradient.
    assert 1.7 * forward < backward <= 2 * forward
    assert flops(timeline, "optimizer") == 0


def test_the_update_is_told_from_what_every_micro_batch_does() -> None:
    model, batch = three_layers(optimizer="adam")
    work = trace_keras(model, batch).work
    kinds = {name: int((work.phase == PHASES.index(name)).sum()) for name in ("forward", "backward", "optimizer")}
    # Four layers with weights and two pools; Adam does at least ten small things for each of eight weights.
    assert kinds["forward"] < 25 and kinds["backward"] < 40 and kinds["optimizer"] > 80
    assert work.tick.min() > 0 and set(work.form.tolist()) == {PLAIN, CONVOLUTION}


def test_half_precision_computes_in_half() -> None:
    keras.config.set_dtype_policy("mixed_float16")
    try:
        model, batch = three_layers()
    finally:
        keras.config.set_dtype_policy("float32")
    work = trace_keras(model, batch).work
    assert work.flops[np.isin(work.form, (HALF, HALF_CONVOLUTION))].sum() > 0.99 * work.flops.sum()


def test_depthwise_convolutions_are_told_apart() -> None:
    layers = keras.layers
    model = keras.Sequential([layers.Input((8, 8, 3)), layers.DepthwiseConv2D(3), layers.Flatten(), layers.Dense(2)])
    model.compile("sgd", "mse")
    work = trace_keras(model, (np.zeros((2, 8, 8, 3), "float32"), np.zeros((2, 2), "float32"))).work
    assert set(work.form[work.flops > 0].tolist()) == {DEPTHWISE, CONVOLUTION}  # TensorFlow's products use TF32 too


def test_larger_batches_do_more_in_proportion() -> None:
    few, many = (trace_keras(*three_layers(batch=size)).work for size in (2, 8))
    update = PHASES.index("optimizer")
    assert many.flops.sum() == 4 * few.flops.sum()
    written = many.bytes[many.phase == update].sum()
    assert written == pytest.approx(few.bytes[few.phase == update].sum(), rel=1e-3)  # but for the metric of the loss
    assert len(many) == len(few)


def test_products_of_matrices() -> None:
    weight = tf.Variable(tf.zeros((32, 16)))

    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            hidden = tf.einsum("bij,jk->bik", x, weight)
            scores = tf.matmul(hidden, hidden, transpose_b=True)
            loss = tf.reduce_sum(tf.reshape(scores, (-1,)))
        weight.assign_sub(tape.gradient(loss, weight))
        return loss

    timeline = trace_step(step, (tf.TensorSpec((4, 8, 32)),))
    assert flops(timeline, "forward") == 2 * 4 * 8 * 32 * 16 + 2 * 4 * 8 * 8 * 16
    # Two for the scores, one for the weight: nobody asks for the gradient of x.
    assert flops(timeline, "backward") == 2 * (2 * 4 * 8 * 8 * 16) + 2 * 4 * 8 * 32 * 16


def node(op: str, *shapes: tuple[int, ...], out: tuple[int, ...], **attrs: Any) -> tuple[Graph, Node]:
    def tensor(shape: tuple[int, ...]) -> Output:
        return Output(shape, "float32", 4 * int(np.prod(shape)))

    given = [Node(f"x{place}", "_Arg", outputs=(tensor(shape),)) for place, shape in enumerate(shapes)]
    inputs = tuple((place, 0) for place in range(len(given)))
    last = Node("y", op, inputs, outputs=(tensor(out),), attrs=attrs)
    return Graph((*given, last), ((len(given), 0),)), last


@pytest.mark.parametrize(
    ("op", "shapes", "out", "expected"),
    [
        ("Conv2D", ((2, 8, 8, 3), (3, 3, 3, 16)), (2, 6, 6, 16), 2 * 2 * 36 * 27 * 16),
        ("DepthwiseConv2dNative", ((2, 8, 8, 4), (3, 3, 4, 2)), (2, 6, 6, 8), 2 * 2 * 36 * 9 * 8),
        ("Conv2DBackpropFilter", ((2, 8, 8, 3), (4,), (2, 6, 6, 16)), (3, 3, 3, 16), 2 * 2 * 36 * 27 * 16),
        ("Conv2DBackpropInput", ((4,), (3, 3, 3, 16), (2, 6, 6, 16)), (2, 8, 8, 3), 2 * 2 * 36 * 27 * 16),
        ("MatMul", ((5, 7), (5, 3)), (7, 3), 2 * 5 * 7 * 3),  # the left one transposed
        ("BatchMatMulV2", ((6, 5, 7), (7, 3)), (6, 5, 3), 2 * 6 * 5 * 7 * 3),
        ("Relu", ((5, 7),), (5, 7), 0),
    ],
)
def test_arithmetic_by_hand(op: str, shapes: Any, out: Any, expected: int) -> None:
    work = work_of(*node(op, *shapes, out=out))
    assert work is not None and work[0] == expected
    assert work[1] == 4 * (sum(int(np.prod(shape)) for shape in shapes) + int(np.prod(out)))


def test_einsum_with_dots() -> None:
    work = work_of(*node("Einsum", (2, 3, 4, 5), (5, 6), out=(2, 3, 4, 6), equation=b"...ij,jk->...ik"))
    assert work is not None and work[0] == 2 * 2 * 3 * 4 * 5 * 6
    turned = work_of(*node("Einsum", (2, 3), out=(3, 2), equation=b"ij->ji"))
    assert turned is not None and turned[0] == 0


def test_what_launches_nothing_is_no_work() -> None:
    assert work_of(*node("Reshape", (4, 8), (1,), out=(32,))) is None
    assert work_of(*node("Identity", (4, 8), out=(4, 8))) is None
    picked = work_of(*node("GatherV2", (1000, 8), (2,), (1,), out=(2, 8)))
    assert picked == (0, 2 * 4 * 16, PLAIN)  # not all of the table
