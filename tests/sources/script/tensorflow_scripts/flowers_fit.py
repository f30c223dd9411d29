"""Flowers from a tf.data pipeline, with callbacks that write."""

import argparse
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from keras import layers

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=16)
parser.add_argument("--image-size", type=int, default=64)
parser.add_argument("--epochs", type=int, default=50)
parser.add_argument("--logs", default="logs")
args = parser.parse_args()

for gpu in tf.config.list_physical_devices("GPU"):
    tf.config.experimental.set_memory_growth(gpu, True)
Path(args.logs).mkdir(exist_ok=True)

photos = np.random.randint(0, 255, (64, 80, 80, 3), dtype=np.uint8)
kinds = np.random.randint(0, 5, 64)


def prepare(photo, kind):
    photo = tf.image.resize(tf.cast(photo, tf.float32) / 255.0, (args.image_size, args.image_size))
    return tf.image.random_flip_left_right(photo), kind


def pipeline(training):
    data = tf.data.Dataset.from_tensor_slices((photos, kinds))
    if training:
        data = data.shuffle(64).repeat()
    data = data.map(prepare, num_parallel_calls=tf.data.AUTOTUNE)
    return data.batch(args.batch_size, drop_remainder=True).prefetch(2)


def block(x, filters):
    x = layers.Conv2D(filters, 3, padding="same", use_bias=False)(x)
    x = layers.BatchNormalization()(x)
    return layers.MaxPooling2D()(layers.ReLU()(x))


inputs = keras.Input((args.image_size, args.image_size, 3))
x = inputs
for filters in (16, 32, 64):
    x = block(x, filters)
outputs = layers.Dense(5, activation="softmax")(layers.Dropout(0.3)(layers.GlobalAveragePooling2D()(x)))
model = keras.Model(inputs, outputs)
model.compile(
    optimizer=keras.optimizers.Adam(1e-3),
    loss="sparse_categorical_crossentropy",
    metrics=["accuracy"],
    jit_compile=False,
)
model.summary()
history = model.fit(
    pipeline(True),
    validation_data=pipeline(False),
    epochs=args.epochs,
    steps_per_epoch=4,
    callbacks=[
        keras.callbacks.TensorBoard(args.logs),
        keras.callbacks.ModelCheckpoint("best.keras", save_best_only=True),
        keras.callbacks.EarlyStopping(patience=5),
    ],
)
print("best", max(history.history["val_accuracy"]))
model.save("final.keras")
