"""A training step of the API, built as its own programs build it, but never run."""

from __future__ import annotations

from typing import Any

from oomproof.frameworks.object_detection import before_api, import_api, parse_config, part
from oomproof.frameworks.quick_graphs import build_quickly
from oomproof.trace.tensorflow.graph.capture import capture, tensorflow
from oomproof.trace.tensorflow.graph.session_graph import capture_session
from oomproof.trace.tensorflow.trace_step import Names
from oomproof.trace.tf_object_detection.batch import GROUND_TRUTH, IMAGES, count_boxes, shapes_of
from oomproof.trace.tf_object_detection.built import AVERAGES, BuiltStep, name_inputs, name_variables
from oomproof.trace.tf_object_detection.request import StepRequest
from oomproof.trace.tf_object_detection.stages import Stages, stage_of_weight

_AVERAGE = "ExponentialMovingAverage"
"""how names of moving averages end in TensorFlow 1"""


def build_step(request: StepRequest) -> BuiltStep:
    before_api()
    tensorflow()  # without its greetings
    tf = import_api(tensorflow_1=request.tensorflow == 1)
    build_quickly()
    config = parse_config(request.text)
    if request.evaluation:
        from oomproof.trace.tf_object_detection.evaluation import build_evaluation

        return build_evaluation(tf, config, request)
    if request.tensorflow == 1:
        return _build_graph(tf, config, request)
    return _build_run(tf, config, request) if request.run else _build_function(tf, config, request)


def _build_function(tf: Any, config: Any, request: StepRequest) -> BuiltStep:
    """As ``model_lib_v2.train_loop`` does it."""
    from oomproof.changes.tf_object_detection.model import make_variables
    from oomproof.frameworks.tensorflow import trace_once

    lib = part("model_lib_v2")
    training, stages = config.train_config, Stages(tf)
    model = part("builders.model_builder").build(config.model, is_training=True, add_summaries=False)
    stages.watch(model)
    step_count = tf.Variable(0, trainable=False, dtype=tf.int64, name="global_step")
    optimizer, _ = part("builders.optimizer_builder").build(training.optimizer, global_step=step_count)
    shapes = shapes_of(config, request)
    features, labels = ({name: tf.TensorSpec(*each, name=name) for name, each in some.items()} for some in shapes)
    if training.optimizer.use_moving_average:
        make_variables(tf, model, (request.height, request.width))  # of which moving averages are copies
        optimizer.shadow_copy(model)
    clip = training.gradient_clipping_by_norm if training.gradient_clipping_by_norm > 0 else None

    def step(features: Any, labels: Any) -> Any:
        losses = lib.eager_train_step(
            model, features, count_boxes(tf, labels, request), training.unpad_groundtruth_tensors, optimizer,
            training_step=step_count, add_regularization_loss=training.add_regularization_loss,
            clip_gradients_value=clip,
        )  # fmt: skip
        step_count.assign_add(1)
        return losses

    # The API's code needs no conversion to graphs, which would take longer than all the rest.
    with tf.device("/CPU:0"):
        captured = capture(trace_once(tf.autograph.experimental.do_not_convert(step), (features, labels)), ())
    graph = captured.function.graph
    norms = _count_norms(graph)
    names = Names(
        stages.owners(node.name for node in graph.get_operations()),
        name_variables(model, optimizer),
        name_inputs(captured, shapes),
    )
    return BuiltStep(captured, names, *shapes, type(optimizer).__name__, norms)


def _build_run(tf: Any, config: Any, request: StepRequest) -> BuiltStep:
    """The step of ``oomproof run``: its last micro-batch, and the update."""
    from oomproof.changes.tf_object_detection.model import Extras, build_training
    from oomproof.frameworks.tensorflow import trace_once

    stages = Stages(tf)
    extras = Extras(request.accumulate, request.half, request.recompute)
    config.train_config.batch_size = request.batch * request.accumulate
    built = build_training(tf, config, (request.height, request.width), extras, stages.watch)
    shapes = shapes_of(config, request)
    features, labels = ({name: tf.TensorSpec(*each, name=name) for name, each in some.items()} for some in shapes)

    def step(features: Any, labels: Any) -> Any:
        counted = count_boxes(tf, labels, request)
        if not built.step.adds:
            return built.step.whole(features, counted)
        losses, finite = built.step.add(features, counted, tf.constant(1.0))
        with tf.control_dependencies([finite]):  # the update is a call of its own, when all has been added
            built.step.update()
        return losses

    with tf.device("/CPU:0"):
        captured = capture(trace_once(tf.autograph.experimental.do_not_convert(step), (features, labels)), ())
    graph = captured.function.graph
    known = name_variables(built.model, built.optimizer)
    known |= {id(each.handle): ("gradient", "gradient sums") for each in getattr(built.step, "sums", ())}
    names = Names(stages.owners(node.name for node in graph.get_operations()), known, name_inputs(captured, shapes))
    return BuiltStep(captured, names, *shapes, type(built.optimizer).__name__, _count_norms(graph))


def _build_graph(tf: Any, config: Any, request: StepRequest) -> BuiltStep:
    """As ``model_main.py`` does it, which lets an Estimator run what ``model_lib.create_model_fn`` builds."""
    lib, v1 = part("model_lib"), tf.compat.v1
    stages, graph, shapes = Stages(tf), tf.Graph(), shapes_of(config, request)
    with graph.as_default():
        features, labels = (
            {name: v1.placeholder(each[1], each[0], name) for name, each in some.items()} for some in shapes
        )

        def make_model(is_training: bool, add_summaries: bool) -> Any:
            made = part("builders.model_builder").build(config.model, is_training=is_training, add_summaries=False)
            return stages.watch(made)

        configs = part("utils.config_util").create_configs_from_pipeline_proto(config)
        configs.setdefault("eval_input_config", None)  # asked for, and read in evaluation alone
        build = lib.create_model_fn(make_model, configs)
        made = build(features, count_boxes(tf, labels, request), "train", None)
    inputs = [*features.values(), *labels.values()]
    captured = capture_session(graph, [made.train_op.op], [made.train_op], inputs)
    operations = graph.get_operations()
    norms = _count_norms(graph)
    names = Names(
        stages.owners(node.name for node in operations),
        {
            each.identity: (
                _kind_of(each.name, each.trainable),
                AVERAGES if each.name.endswith(_AVERAGE) else stage_of_weight(each.name),
            )
            for each in captured.variables
        },
        dict.fromkeys((each.op.name for each in features.values()), IMAGES)
        | dict.fromkeys((each.op.name for each in labels.values()), GROUND_TRUTH),
    )
    optimizer = config.train_config.optimizer.WhichOneof("optimizer")
    return BuiltStep(
        captured, names, *shapes, optimizer, norms, graph, (made.train_op,), (*features.values(), *labels.values())
    )


def _count_norms(graph: Any) -> int:
    """Normalisations that take their statistics from the batch."""
    found = (each for each in graph.get_operations() if each.type == "FusedBatchNormV3")
    return sum(bool(each.get_attr("is_training")) for each in found)


def _kind_of(name: str, trained: bool | None) -> str:
    if trained:
        return "parameter"
    *_, last = name.split("/")
    slots = ("Momentum", "RMSProp", "Adam", _AVERAGE)
    return "optimizer" if last.startswith(slots) else "buffer"
