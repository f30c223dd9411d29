"""A model with a train_step of its own, mixed precision, fed by a PyDataset; settings in a JSON file."""

import json
import pathlib

import keras
import numpy as np
import tensorflow as tf

config = json.loads((pathlib.Path(__file__).parent / "own_train_step.json").read_text())
keras.mixed_precision.set_global_policy(config["precision"])


class Pairs(keras.utils.PyDataset):
    def __len__(self):
        return 100

    def __getitem__(self, number):
        side = config["image_size"]
        return (np.random.rand(config["batch_size"], side, side, 3).astype("float32"),)


class Contrastive(keras.Model):
    def __init__(self, encoder):
        super().__init__()
        self.encoder = encoder
        self.loss_tracker = keras.metrics.Mean(name="loss")

    def call(self, x, training=False):
        return self.encoder(x, training=training)

    def train_step(self, data):
        images = data[0] if isinstance(data, tuple) else data
        with tf.GradientTape() as tape:
            both = self(tf.concat([images, tf.image.flip_left_right(images)], 0), training=True)
            both = tf.math.l2_normalize(tf.cast(both, tf.float32), 1)
            loss = -tf.reduce_mean(tf.linalg.diag_part(both @ tf.transpose(both)))
            scaled = self.optimizer.scale_loss(loss)
        gradients = tape.gradient(scaled, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        self.loss_tracker.update_state(loss)
        return {"loss": self.loss_tracker.result()}


encoder = keras.Sequential(
    [
        keras.layers.Conv2D(32, 3, activation="relu"),
        keras.layers.MaxPooling2D(),
        keras.layers.Conv2D(64, 3, activation="relu"),
        keras.layers.GlobalAveragePooling2D(),
        keras.layers.Dense(128),
    ]
)
model = Contrastive(encoder)
model.compile(optimizer="adam", jit_compile=False)
model.fit(Pairs(), epochs=100)
