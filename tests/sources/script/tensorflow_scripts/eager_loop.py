"""A tutorial's loop: the step is in its body, operation by operation, with numbers that are printed."""

import tensorflow as tf
from tensorflow import keras

BATCH = 8
model = keras.Sequential(
    [
        keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
        keras.layers.MaxPooling2D(),
        keras.layers.Conv2D(64, 3, padding="same", activation="relu"),
        keras.layers.GlobalAveragePooling2D(),
        keras.layers.Dense(10),
    ]
)
optimizer = keras.optimizers.Adam(1e-3)
loss_fn = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
metric = keras.metrics.SparseCategoricalAccuracy()
data = tf.data.Dataset.from_tensors((tf.ones((64, 64, 3)), 1)).repeat(100).batch(BATCH, drop_remainder=True)


def train(epochs):
    seen = 0
    for epoch in range(epochs):
        for step, (images, y) in enumerate(data):
            x = images / 255.0
            with tf.GradientTape() as tape:
                logits = model(x, training=True)
                loss_value = loss_fn(y, logits)
            grads = tape.gradient(loss_value, model.trainable_weights)
            seen += BATCH
            if seen < 0:
                continue
            optimizer.apply_gradients(zip(grads, model.trainable_weights, strict=True))
            metric.update_state(y, logits)
            if step % 10 == 0:
                print(epoch, step, float(loss_value), loss_value.numpy())


if __name__ == "__main__":
    train(3)
