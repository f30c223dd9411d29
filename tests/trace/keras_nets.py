"""Keras models for tests, from small to those that people train, each with a batch for it."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers

Batch = tuple[Any, ...]
LOGITS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def compiled(model: Any, optimizer: Any = "adam", loss: Any = "sparse_categorical_crossentropy") -> Any:
    model.compile(optimizer=optimizer, loss=loss, jit_compile=False)
    return model


def images(count: int, side: int) -> Any:
    return tf.zeros((count, side, side, 3))


def labelled(count: int, side: int) -> Batch:
    return images(count, side), tf.zeros((count,), tf.int32)


def three_layers(batch: int = 8, optimizer: Any = "adam") -> tuple[Any, Batch]:
    """The beginner's CNN of 16, 32 and 64 filters."""
    model = keras.Sequential([keras.Input((256, 256, 3))])
    for filters in (16, 32, 64):
        model.add(layers.Conv2D(filters, 3, padding="same", activation="relu"))
        model.add(layers.MaxPooling2D() if filters < 64 else layers.GlobalAveragePooling2D())
    model.add(layers.Dense(10, activation="softmax"))
    return compiled(model, optimizer), labelled(batch, 256)


def dense_head(optimizer: Any = "adam") -> tuple[Any, Batch]:
    """Small, with most of its weights in one layer, so that what an optimizer holds shows."""
    x = entry = keras.Input((64, 64, 3))
    for filters in (16, 32):
        x = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(filters, 3, padding="same")(x)))
        x = layers.MaxPooling2D()(x)
    x = layers.Dropout(0.3)(layers.Dense(32, activation="relu")(layers.Flatten()(x)))
    return compiled(keras.Model(entry, layers.Dense(10, dtype="float32")(x)), optimizer, LOGITS), labelled(16, 64)


def unet(side: int = 128, base: int = 16) -> tuple[Any, Batch]:
    def block(x: Any, filters: int) -> Any:
        for _ in range(2):
            x = layers.Conv2D(filters, 3, padding="same", use_bias=False)(x)
            x = layers.ReLU()(layers.BatchNormalization()(x))
        return x

    x = entry = keras.Input((side, side, 3))
    skipped = []
    for level in range(3):
        x = block(x, base << level)
        skipped.append(x)
        x = layers.MaxPooling2D()(x)
    x = block(x, base << 3)
    for level in (2, 1, 0):
        x = layers.Conv2DTranspose(base << level, 2, strides=2)(x)
        x = block(layers.Concatenate()([x, skipped[level]]), base << level)
    model = compiled(keras.Model(entry, layers.Conv2D(4, 1)(x)), loss=LOGITS)
    return model, (images(4, side), tf.zeros((4, side, side), tf.int32))


def conv_lstm() -> tuple[Any, Batch]:
    """For videos: a loop over frames."""
    entry = keras.Input((8, 48, 48, 3))
    x = layers.ConvLSTM2D(16, 3, padding="same", return_sequences=True)(entry)
    x = layers.Flatten()(layers.MaxPooling3D()(layers.Conv3D(8, 3, padding="same", activation="relu")(x)))
    model = compiled(keras.Model(entry, layers.Dense(4, activation="softmax")(x)))
    return model, (tf.zeros((4, 8, 48, 48, 3)), tf.zeros((4,), tf.int32))


def application(name: str, batch: int, side: int) -> tuple[Any, Batch]:
    model = getattr(keras.applications, name)(weights=None, input_shape=(side, side, 3), classes=10)
    return compiled(model), labelled(batch, side)


def retinanet(side: int = 256) -> tuple[Any, Batch]:
    import keras_hub

    encoder = keras_hub.models.ResNetBackbone(
        input_conv_filters=[64],
        input_conv_kernel_sizes=[7],
        stackwise_num_filters=[64, 64, 64],
        stackwise_num_blocks=[2, 2, 2],
        stackwise_num_strides=[1, 2, 2],
        block_type="basic_block",
        use_pre_activation=False,
    )
    backbone = keras_hub.models.RetinaNetBackbone(image_encoder=encoder, min_level=3, max_level=4, use_p5=False)
    anchors = keras_hub.layers.AnchorGenerator(
        bounding_box_format="yxyx", min_level=3, max_level=4, num_scales=3, aspect_ratios=[0.5, 1, 2], anchor_size=4
    )
    converter = keras_hub.layers.RetinaNetImageConverter(
        image_size=(side, side), bounding_box_format="yxyx", scale=1 / 255.0
    )
    model = keras_hub.models.RetinaNetObjectDetector(
        backbone=backbone,
        anchor_generator=anchors,
        num_classes=5,
        preprocessor=keras_hub.models.RetinaNetObjectDetectorPreprocessor(image_converter=converter),
    )
    model.compile(optimizer=keras.optimizers.SGD(0.01, momentum=0.9), jit_compile=False)
    boxes = np.tile(np.array([[[20, 20, 120, 120]]], "float32"), (2, 1, 1))
    labels = {"boxes": tf.constant(boxes), "labels": tf.ones((2, 1), tf.int32)}
    return model, (images(2, side), labels)
