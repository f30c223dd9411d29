"""Generator and critic, one tf.function each; the critic has five turns."""

import tensorflow as tf
from tensorflow import keras

LATENT, BATCH = 32, 16
generator = keras.Sequential(
    [
        keras.Input((LATENT,)),
        keras.layers.Dense(8 * 8 * 64),
        keras.layers.Reshape((8, 8, 64)),
        keras.layers.Conv2DTranspose(32, 4, strides=2, padding="same", activation="relu"),
        keras.layers.Conv2DTranspose(3, 4, strides=2, padding="same", activation="tanh"),
    ]
)
critic = keras.Sequential(
    [
        keras.Input((32, 32, 3)),
        keras.layers.Conv2D(16, 4, strides=2, padding="same", activation="leaky_relu"),
        keras.layers.Conv2D(32, 4, strides=2, padding="same", activation="leaky_relu"),
        keras.layers.Flatten(),
        keras.layers.Dense(1),
    ]
)
g_optimizer, c_optimizer = keras.optimizers.Adam(1e-4, 0.5), keras.optimizers.Adam(1e-4, 0.5)
for optimizer, net in ((g_optimizer, generator), (c_optimizer, critic)):
    optimizer.build(net.trainable_variables)


@tf.function
def train_critic(real):
    noise = tf.random.normal((BATCH, LATENT))
    with tf.GradientTape() as tape:
        fake = generator(noise, training=True)
        mixed = real + tf.random.uniform((BATCH, 1, 1, 1)) * (fake - real)
        with tf.GradientTape() as inner:
            inner.watch(mixed)
            score = critic(mixed, training=True)
        slope = tf.sqrt(tf.reduce_sum(inner.gradient(score, mixed) ** 2, axis=[1, 2, 3]) + 1e-12)
        loss = tf.reduce_mean(critic(fake) - critic(real)) + 10.0 * tf.reduce_mean((slope - 1.0) ** 2)
    weights = critic.trainable_variables
    c_optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
    return loss


@tf.function
def train_generator():
    with tf.GradientTape() as tape:
        loss = -tf.reduce_mean(critic(generator(tf.random.normal((BATCH, LATENT)), training=True)))
    weights = generator.trainable_variables
    g_optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
    return loss


photos = tf.data.Dataset.from_tensors(tf.random.uniform((32, 32, 3), -1, 1)).repeat().batch(BATCH)
for number, real in enumerate(photos.take(10_000)):
    c_loss = train_critic(real)
    if number % 5 == 4:
        g_loss = train_generator()
        print(f"{number}: critic {c_loss:.3f} generator {g_loss:.3f}")
