"""An evaluation step of the API: the model predicts, takes its losses, and makes detections of what it predicts.

As ``model_lib_v2.eager_eval_loop`` and ``model_lib.create_model_fn`` do it. Masks are then drawn at the size that
images are stored in, outside of this step; the source adds them (sources/tf_object_detection/evaluated.py).
"""

from __future__ import annotations

from typing import Any

from oomproof.frameworks.object_detection import part
from oomproof.trace.tensorflow.graph.capture import capture
from oomproof.trace.tensorflow.graph.session_graph import capture_session
from oomproof.trace.tensorflow.trace_step import Names
from oomproof.trace.tf_object_detection.batch import GROUND_TRUTH, IMAGES, Shapes, count_boxes, shapes_of
from oomproof.trace.tf_object_detection.built import BuiltStep, name_inputs, name_variables
from oomproof.trace.tf_object_detection.request import StepRequest
from oomproof.trace.tf_object_detection.stages import Stages, stage_of_weight


def build_evaluation(tf: Any, config: Any, request: StepRequest) -> BuiltStep:
    stages = Stages(tf)
    shapes = shapes_of(config, request)

    def make_model() -> Any:
        made = part("builders.model_builder").build(config.model, is_training=False, add_summaries=False)
        return stages.watch(made)

    if request.tensorflow == 1:
        return _build_graph(tf, request, stages, shapes, make_model)
    from oomproof.frameworks.tensorflow import trace_once

    model = make_model()
    features, labels = ({name: tf.TensorSpec(*each, name=name) for name, each in some.items()} for some in shapes)

    def step(features: Any, labels: Any) -> Any:
        return _evaluate(model, features, count_boxes(tf, labels, request), request)

    with tf.device("/CPU:0"):
        captured = capture(trace_once(tf.autograph.experimental.do_not_convert(step), (features, labels)), ())
    operations = captured.function.graph.get_operations()
    names = Names(stages.owners(node.name for node in operations), name_variables(model), name_inputs(captured, shapes))
    return BuiltStep(captured, names, *shapes, "", 0)


def _build_graph(
    tf: Any, request: StepRequest, stages: Stages, shapes: tuple[Shapes, Shapes], make_model: Any
) -> BuiltStep:
    graph, v1 = tf.Graph(), tf.compat.v1
    with graph.as_default():
        features, labels = (
            {name: v1.placeholder(each[1], each[0], name) for name, each in some.items()} for some in shapes
        )
        made = _evaluate(make_model(), features, count_boxes(tf, labels, request), request)
        wanted = [each for each in tf.nest.flatten(made) if tf.is_tensor(each)]
    inputs = [*features.values(), *labels.values()]
    used = {
        each.name for each in v1.graph_util.extract_sub_graph(graph.as_graph_def(), [w.op.name for w in wanted]).node
    }
    captured = capture_session(graph, [], wanted, [each for each in inputs if each.op.name in used])
    names = Names(
        stages.owners(node.name for node in graph.get_operations()),
        {
            each.identity: ("parameter" if each.trainable else "buffer", stage_of_weight(each.name))
            for each in captured.variables
        },
        dict.fromkeys((each.op.name for each in features.values()), IMAGES)
        | dict.fromkeys((each.op.name for each in labels.values()), GROUND_TRUTH),
    )
    return BuiltStep(captured, names, shapes[0], shapes[1], "", 0, graph, tuple(wanted), tuple(inputs))


def _evaluate(model: Any, features: Any, labels: Any, request: StepRequest) -> Any:
    fields, lib = part("core.standard_fields").InputDataFields, part("model_lib")
    # Ground truth of a single image is cut to the objects that it has, whatever train_config says.
    unstacked = lib.unstack_batch(labels, unpad_groundtruth_tensors=request.batch == 1)
    lib.provide_groundtruth(model, unstacked)
    shape = features[fields.true_image_shape]
    predictions = model.predict(features[fields.image], shape)
    losses = model.loss(predictions, shape)
    return losses, model.postprocess(predictions, shape)
