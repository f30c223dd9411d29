"""Gradients of one batch by several ways, for real: ``python tfod_gradients.py PIPELINE.CONFIG`` prints a line of JSON.

A process of its own, since the API needs Keras 2. In the config, batch normalisation is frozen and nothing is dropped
out; objects differ from image to image, so that a mean over micro-batches would be wrong.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from oomproof.changes.tf_object_detection.model import Built, Extras, build_training
from oomproof.frameworks.object_detection import import_api, parse_config, part
from oomproof.run.tf_object_detection.records import open_batches

SIZE = 96, 96
WAYS: dict[str, dict[str, Any]] = {
    "whole": {},
    "in 4": {"accumulate": 4},
    "computed again": {"recompute": True},
    "float16": {"half": True},
}


def main(path: Path) -> dict[str, Any]:
    tf = import_api(tensorflow_1=False)
    config = parse_config(path.read_text())
    images = config.train_config.batch_size
    batch: Any = None
    found: dict[str, Any] = {}
    first: Any = None
    weights: list[Any] = []
    for name, given in WAYS.items():
        tf.keras.backend.clear_session()
        tf.keras.mixed_precision.set_global_policy("float32")
        tf.keras.utils.set_random_seed(1)
        built = build_training(tf, config, SIZE, Extras(**given))
        weights = weights or [each.numpy() for each in built.model.variables]
        for each, value in zip(built.model.variables, weights, strict=True):
            assert np.array_equal(each.numpy(), value), "weights begin by the seed"
        if batch is None:
            batch = next(iter(open_batches(tf, config, built.model, images=images, seed=0, first=0)))
        losses, gradients = gradients_of(tf, built, batch)
        if first is None:
            first = losses, gradients
            found["objects"] = [int(each) for each in batch[1]["num_groundtruth_boxes"]]
            [whole] = api_gradients(tf, built, [batch])
            found["api"] = apart(whole, gradients)
            pieces = api_gradients(tf, built, cut(tf, batch, 4))
            naive = [np.mean(each, axis=0) for each in zip(*pieces, strict=True)]
            found["mean of micro-batches"] = apart(naive, gradients)
        found[name] = {
            "gradients": apart(gradients, first[1]),
            "loss": abs(losses["Loss/total_loss"] / first[0]["Loss/total_loss"] - 1),
            "variables": len(gradients),
            "half": any(getattr(each, "compute_dtype", "") == "float16" for each in built.model.submodules),
        }
    return found


def gradients_of(tf: Any, built: Built, batch: Any) -> tuple[dict[str, float], list[Any]]:
    """What a step hands to its optimizer."""
    step, seen = built.step, []

    class Optimizer:
        def apply_gradients(self, pairs: Any) -> None:
            seen.extend(gradient for gradient, _ in pairs)

    step.optimizer = Optimizer()
    if not step.adds:

        def whole(features: Any, labels: Any) -> Any:
            return step.whole(features, labels), list(seen)

        losses, gradients = tf.function(whole, autograph=False)(*batch)
        return {name: float(each) for name, each in losses.items()}, [each.numpy() for each in gradients]
    step.begin()
    add, pieces, total = tf.function(step.add, autograph=False), step.options.accumulate, dict[str, float]()
    for each in cut(tf, batch, pieces):
        losses, finite = add(*each, tf.constant(1024.0 if step.options.half else 1.0))
        assert bool(finite)
        total = {name: total.get(name, 0.0) + float(value) for name, value in losses.items()}

    def update() -> Any:
        return (*step.update(), list(seen))

    divisor, penalty, gradients = tf.function(update, autograph=False)()
    total = {name: value / float(divisor) for name, value in total.items()}
    total["Loss/total_loss"] += float(penalty)
    return total, [each.numpy() for each in gradients]


def api_gradients(tf: Any, built: Built, batches: list[Any]) -> list[list[Any]]:
    """By the API's own ``eager_train_step``, of each batch."""
    seen: list[Any] = []

    class Optimizer:
        def apply_gradients(self, pairs: Any) -> None:
            seen[:] = [gradient for gradient, _ in pairs]

    def step(features: Any, labels: Any) -> Any:
        part("model_lib_v2").eager_train_step(
            built.model, features, labels, False, Optimizer(), training_step=built.counter
        )
        return list(seen)

    run = tf.function(step, autograph=False)
    return [[each.numpy() for each in run(*batch)] for batch in batches]


def cut(tf: Any, batch: Any, pieces: int) -> list[Any]:
    size = batch[0]["image"].shape[0] // pieces
    return [
        tf.nest.map_structure(lambda each, place=place: each[place * size : (place + 1) * size], batch)
        for place in range(pieces)
    ]


def apart(some: list[Any], others: list[Any]) -> float:
    """The largest distance of a variable's gradients, as a part of their size. What is less than a ten-thousandth of
    all gradients together is rounding of larger numbers, and counts as so much."""
    least = 1e-4 * float(np.sqrt(sum(np.linalg.norm(each) ** 2 for each in others)))
    return max(float(np.linalg.norm(a - b) / max(np.linalg.norm(b), least)) for a, b in zip(some, others, strict=True))


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    warnings.simplefilter("ignore")
    print(json.dumps(main(Path(sys.argv[1]))))
    sys.stdout.flush()
    os._exit(0)
