"""An autoencoder whose step is a plain method: nobody has put tf.function on it."""

import numpy as np
import tensorflow as tf
from tensorflow import keras


class Trainer:
    def __init__(self, width=32):
        self.encoder = keras.Sequential(
            [keras.layers.Conv2D(width, 3, strides=2, padding="same", activation="relu") for _ in range(3)]
        )
        self.decoder = keras.Sequential(
            [keras.layers.Conv2DTranspose(width, 3, strides=2, padding="same", activation="relu") for _ in range(3)]
            + [keras.layers.Conv2D(3, 1)]
        )
        self.optimizer = keras.optimizers.AdamW(1e-3)

    def step(self, images, weight=1.0):
        with tf.GradientTape() as tape:
            loss = weight * tf.reduce_mean((self.decoder(self.encoder(images)) - images) ** 2)
        variables = self.encoder.trainable_variables + self.decoder.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    def run(self):
        for number in range(1000):
            loss = self.step(np.random.rand(8, 64, 64, 3).astype("float32"), weight=0.5)
            print(number, loss.numpy())


if __name__ == "__main__":
    Trainer().run()
