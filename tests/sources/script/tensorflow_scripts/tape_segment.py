"""A segmentation network with a training loop of its own, and checkpoints."""

import sys

import tensorflow as tf
from tensorflow.keras import layers

SIZE, CLASSES = 96, 4


class Net(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.down = [layers.Conv2D(width, 3, strides=2, padding="same", activation="relu") for width in (16, 32, 64)]
        self.up = [layers.Conv2DTranspose(width, 3, strides=2, padding="same", activation="relu") for width in (32, 16)]
        self.last = layers.Conv2DTranspose(CLASSES, 3, strides=2, padding="same")

    def call(self, x, training=False):
        kept = []
        for layer in self.down:
            x = layer(x)
            kept.append(x)
        for layer, skip in zip(self.up, reversed(kept[:-1]), strict=True):
            x = tf.concat([layer(x), skip], -1)
        return self.last(x)


net = Net()
optimizer = tf.keras.optimizers.SGD(0.01, momentum=0.9)
loss_fn = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
mean_loss = tf.keras.metrics.Mean()


@tf.function
def train_step(images, masks):
    with tf.GradientTape() as tape:
        loss = loss_fn(masks, net(images, training=True))
    gradients = tape.gradient(loss, net.trainable_variables)
    gradients, _ = tf.clip_by_global_norm(gradients, 1.0)
    optimizer.apply_gradients(zip(gradients, net.trainable_variables, strict=True))
    mean_loss.update_state(loss)
    return loss


def main(batch):
    with tf.device("/GPU:0"):
        data = (
            tf.data.Dataset.from_tensors((tf.random.uniform((SIZE, SIZE, 3)), tf.zeros((SIZE, SIZE), tf.int32)))
            .repeat(100)
            .batch(batch)
        )
    checkpoint = tf.train.Checkpoint(net=net, optimizer=optimizer)
    manager = tf.train.CheckpointManager(checkpoint, "ckpt", max_to_keep=3)
    for epoch in range(10):
        mean_loss.reset_state()
        for number, (images, masks) in enumerate(data):
            loss = train_step(images, masks)
            if number % 10 == 0:
                print(epoch, number, float(loss))
        manager.save()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 8)
