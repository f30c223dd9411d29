"""The API's model, optimizer and step, built for a training with what the API lacks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from oomproof.changes.tf_object_detection.recompute import recompute_blocks
from oomproof.changes.tf_object_detection.step import DetectionStep, StepOptions
from oomproof.frameworks.object_detection import part, predict_with_objects

HALF = "mixed_float16"


@dataclass(frozen=True)
class Extras:
    """What the API lacks."""

    accumulate: int = 1
    """micro-batches of an update"""
    half: bool = False
    recompute: bool = False
    seed: int = 0
    gpus: int = 1


@dataclass(frozen=True)
class Built:
    model: Any
    optimizer: Any
    learning_rate: Any
    """a function"""
    counter: Any
    """the API's global step"""
    step: DetectionStep


def build_training(tf: Any, config: Any, size: tuple[int, int], extras: Extras, watch: Any = None) -> Built:
    """As ``model_lib_v2.train_loop`` does it. ``size``: height and width of the images that the model gets; ``watch``
    is handed the model before it is first called."""
    training = config.train_config
    if extras.half:
        tf.keras.mixed_precision.set_global_policy(HALF)
    model = part("builders.model_builder").build(config.model, is_training=True, add_summaries=False)
    if watch is not None:
        watch(model)
    if extras.half:
        _answer_in_float32(tf, model)
    counter = tf.Variable(
        0, trainable=False, dtype=tf.int64, name="global_step",
        aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
    )  # fmt: skip
    optimizer, (rate,) = part("builders.optimizer_builder").build(training.optimizer, global_step=counter)
    make_variables(tf, model, size)
    if training.optimizer.use_moving_average:
        optimizer.shadow_copy(model)
    if extras.recompute:
        recompute_blocks(tf, model)
    clip = training.gradient_clipping_by_norm
    options = StepOptions(
        kind=config.model.WhichOneof("model"),
        images=training.batch_size // extras.gpus,
        accumulate=extras.accumulate,
        half=extras.half,
        gpus=extras.gpus,
        unpad=training.unpad_groundtruth_tensors,
        regularised=training.add_regularization_loss,
        clip=clip if clip > 0 else None,
        seed=extras.seed,
    )
    step = DetectionStep(tf, model, optimizer, counter, options)
    return Built(model, optimizer, rate if callable(rate) else lambda: rate, counter, step)


def make_variables(tf: Any, model: Any, size: tuple[int, int]) -> None:
    """Keras makes a layer's weights when it is first called. The API does so with the first batch; a call that is
    traced and never run needs no memory for it."""
    from oomproof.frameworks.tensorflow import trace_once

    def predict(images: Any, shapes: Any) -> Any:
        return predict_with_objects(model, images, shapes)

    images = tf.TensorSpec((1, *size, 3), tf.float32)
    shapes = tf.TensorSpec((1, 3), tf.int32)
    tf.keras.backend.set_learning_phase(True)
    trace_once(tf.autograph.experimental.do_not_convert(predict), (images, shapes))


def _answer_in_float32(tf: Any, model: Any) -> None:
    """The API's losses take float32; it casts from bfloat16 by itself, and knows no float16."""
    predict = model.predict

    def predict_float32(*args: Any, **kwargs: Any) -> Any:
        return tf.nest.map_structure(
            lambda each: tf.cast(each, tf.float32) if getattr(each, "dtype", None) == tf.float16 else each,
            predict(*args, **kwargs),
        )

    object.__setattr__(model, "predict", predict_float32)
