"""One step of the Object Detection API's evaluation for real on this CPU, beside what was foretold of it:
``python tests/trace/tfod_evaluation_real.py JOB.json`` prints one line of JSON. A process of its own, as tfod_real.py.

The body of ``model_lib_v2.eager_eval_loop``: the model's step, then ``prepare_eval_dict``, which draws masks at the
size that an image is stored in. Metrics, which are for the host, are left out.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import types
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from tfod_real import content, held_before

from oomproof.frameworks.object_detection import part
from oomproof.memory import make_forecast
from oomproof.memory.batch_spec import BatchSpec, ImageSpec
from oomproof.memory.cards.devices import find_device
from oomproof.memory.runtime import Runtime
from oomproof.memory.validation import Validation
from oomproof.sources.settings import resolve
from oomproof.sources.tf_object_detection.config.config import config_of_text
from oomproof.sources.tf_object_detection.evaluated import describe_evaluation, with_full_masks
from oomproof.sources.tf_object_detection.job import open_config
from oomproof.trace.tensorflow.trace_step import prepare_step, timeline_of
from oomproof.trace.tf_object_detection.build import build_step
from oomproof.trace.tf_object_detection.built import BuiltStep
from oomproof.trace.tf_object_detection.request import StepRequest

Size = tuple[int, int]


def main(text: str, stored: Size) -> dict[str, Any]:
    job = open_config(config_of_text(text, "pipeline.config"), "pipeline.config")
    settings = resolve(job, {})
    of = describe_evaluation(job.config, settings, Validation(), BatchSpec((ImageSpec(*stored, 8),)))
    request = replace(
        job.step_request(settings), dialect="cpu", height=of.size[0], width=of.size[1], batch=of.images, boxes=(),
        evaluation=True,
    )  # fmt: skip
    built = build_step(request)
    step = prepare_step(built.captured, names=built.names, dialect="cpu")
    timeline = with_full_masks(timeline_of(step, "cpu"), of)
    told = make_forecast.build_forecast(timeline, find_device("64GiB"), Runtime(), "evaluation", {}).allocated
    real, kept = measure_evaluation(built, request, stored)
    return {
        "real": real + kept + held_before(step),
        "kept": kept,
        "expected": told.expected,
        "low": told.low,
        "high": told.high,
    }


def measure_evaluation(built: BuiltStep, request: StepRequest, stored: Size) -> tuple[int, int]:
    """Bytes on top of what was there before an image, and those that the image before it has left."""
    import tensorflow as tf
    from real_tf import measure

    lib = _with_evaluation()
    size = request.height, request.width
    features, labels = (
        {name: tf.constant(content(name, *each, size)) for name, each in some.items()}
        for some in (built.features, built.labels)
    )
    given = {
        **features,
        "original_image": tf.zeros((request.batch, *size, 3), tf.uint8),  # inputs.py resizes it, too
        "original_image_spatial_shape": tf.constant([stored] * request.batch),
    }
    left: dict[str, Any] = {}

    def evaluate() -> None:
        # Each name holds what the image before has left, until this one's takes its place.
        left["predicted"] = built.captured.function(features, labels)
        left["made"] = lib.prepare_eval_dict(left["predicted"][1], dict(labels), given)

    found = measure(evaluate).without_scratch
    there = {id(each) for each in tf.nest.flatten([given, labels])}
    unique = {id(each): each for each in tf.nest.flatten(left) if tf.is_tensor(each) and id(each) not in there}
    return found, sum(int(np.prod(each.shape)) * each.dtype.size for each in unique.values())


def _with_evaluation() -> Any:
    """The API's eval_util as it is, without the metrics that it names: they need packages of their own."""
    for name in ("metrics.coco_evaluation", "metrics.lvis_evaluation", "utils.object_detection_evaluation"):
        made = types.ModuleType(f"object_detection.{name}")
        made.__getattr__ = lambda _: object  # type: ignore[method-assign]
        sys.modules[made.__name__] = made
        package, _, last = made.__name__.rpartition(".")
        setattr(importlib.import_module(package), last, made)
    del sys.modules["object_detection.eval_util"]
    lib = part("model_lib_v2")
    lib.eval_util = importlib.import_module("object_detection.eval_util")
    return lib


if __name__ == "__main__":
    os.environ |= {"TF_ENABLE_ONEDNN_OPTS": "0", "TF_CPP_MIN_LOG_LEVEL": "3", "TF_NUM_INTEROP_THREADS": "1"}
    warnings.simplefilter("ignore")
    asked = json.loads(Path(sys.argv[1]).read_text())
    print(json.dumps(main(asked["text"], tuple(asked["stored"]))))
    sys.stdout.flush()
    os._exit(0)
