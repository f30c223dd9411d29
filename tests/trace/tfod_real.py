"""One training step of the Object Detection API for real on this CPU, beside what was foretold of it. A process of its
own: ``python tests/trace/tfod_real.py REQUEST.json`` prints one line of JSON. Bytes throughout; scratch of kernels is
left out on both sides, as in test_tf_real.py.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from oomproof.memory import make_forecast
from oomproof.memory.cards.devices import find_device
from oomproof.memory.runtime import Runtime
from oomproof.trace.tensorflow.trace_step import (
    PreparedStep,
    find_measured_order,
    lay_out_step,
    prepare_step,
    timeline_of,
)
from oomproof.trace.tf_object_detection.build import build_step
from oomproof.trace.tf_object_detection.built import BuiltStep
from oomproof.trace.tf_object_detection.request import StepRequest

OBJECTS = 8
"""in every image; the rest of the ground truth is padding"""
ALIGNED = 64
"""bytes, EIGEN_MAX_ALIGN_BYTES of TensorFlow's builds"""


def main(request: StepRequest) -> dict[str, Any]:
    built = build_step(request)
    step = prepare_step(built.captured, names=built.names, dialect="cpu")
    timeline = timeline_of(step, "cpu")
    told = make_forecast.build_forecast(timeline, find_device("64GiB"), Runtime(), "step", {}).allocated
    real = measure_step(built, request)
    before = held_before(step)
    replayed = lay_out_step(step, find_measured_order(step, real.order), "cpu").peak().bytes
    return {
        "real": real.without_scratch + before,
        "replayed": replayed,
        "expected": told.expected,
        "low": told.low,
        "high": told.high,
        "nodes": len(step.graph.nodes),
    }


def held_before(step: PreparedStep) -> int:
    graph = step.graph
    constants = sum(node.outputs[0].bytes for node in graph.nodes if node.op == "Const")
    given = sum(graph.nodes[number].outputs[0].bytes for number in graph.arguments)
    return constants + given + sum(variable.bytes for variable in step.captured.variables)


def measure_step(built: BuiltStep, request: StepRequest) -> Any:
    from real_tf import measure

    size = request.height, request.width
    features, labels = (
        {name: content(name, *each, size) for name, each in some.items()} for some in (built.features, built.labels)
    )
    if request.tensorflow == 2:
        import tensorflow as tf

        run = built.captured.function
        given = tf.nest.map_structure(tf.constant, (features, labels))
        return measure(lambda: run(*given))
    import tensorflow.compat.v1 as tf1

    values = [align(each) for each in (*features.values(), *labels.values())]
    config = tf1.ConfigProto(inter_op_parallelism_threads=1)
    with built.graph.as_default(), tf1.Session(graph=built.graph, config=config) as session:
        session.run(tf1.global_variables_initializer())
        run = session.make_callable(built.fetches[0], feed_list=list(built.feeds))
        return measure(lambda: run(*values))


def align(array: Any) -> Any:
    """The same numbers where TensorFlow takes them as they are. Of what lies elsewhere, as malloc's luck has it, a
    session makes a copy, which would be counted beside what was given."""
    room = np.empty(array.nbytes + ALIGNED, np.uint8)
    start = -room.ctypes.data % ALIGNED
    made = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    made[...] = array
    return made


def content(name: str, shape: tuple[int, ...], dtype: str, size: tuple[int, int]) -> Any:
    """A batch that the API could have read: objects in the middle of images, then padding."""
    rng = np.random.default_rng(0)
    if name == "image":
        return rng.uniform(-1, 1, shape).astype(dtype)
    if name == "true_image_shape":
        return np.tile(np.array((*size, 3), dtype), (shape[0], 1))
    if name == "valid_context_size":
        return np.full(shape, 100, dtype)
    if name == "context_features":
        return rng.uniform(0, 1, shape).astype(dtype)
    if name == "num_groundtruth_boxes":
        return np.full(shape, OBJECTS, dtype)
    made = np.zeros(shape, dtype)
    if name == "groundtruth_boxes":
        corner = rng.uniform(0.05, 0.5, (shape[0], OBJECTS, 2))
        made[:, :OBJECTS] = np.concatenate([corner, corner + rng.uniform(0.1, 0.4, corner.shape)], axis=-1)
    elif name in ("groundtruth_classes", "groundtruth_confidences"):
        made[:, :OBJECTS, 0] = 1
    elif name in ("groundtruth_weights", "groundtruth_instance_mask_weights"):
        made[:, :OBJECTS] = 1
    elif name == "groundtruth_instance_masks":
        made[:, :OBJECTS, shape[2] // 4 : shape[2] // 2, shape[3] // 4 : shape[3] // 2] = 1
    return made


if __name__ == "__main__":
    # Before TensorFlow is imported: one thread for operations, whose order can be foretold, and no kernel of oneDNN's.
    os.environ |= {"TF_ENABLE_ONEDNN_OPTS": "0", "TF_CPP_MIN_LOG_LEVEL": "3", "TF_NUM_INTEROP_THREADS": "1"}
    warnings.simplefilter("ignore")
    print(json.dumps(main(StepRequest(**json.loads(Path(sys.argv[1]).read_text())))))
    sys.stdout.flush()
    os._exit(0)
