"""A small RetinaNet of KerasHub, trained by fit on a tf.data pipeline of images with padded boxes."""

import argparse

import keras
import keras_hub
import tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=2)
parser.add_argument("--image-size", type=int, default=128)
parser.add_argument("--epochs", type=int, default=20)
args = parser.parse_args()
SIZE, BOXES = args.image_size, 8

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
    bounding_box_format="xyxy", min_level=3, max_level=4, num_scales=3, aspect_ratios=[0.5, 1, 2], anchor_size=4
)
converter = keras_hub.layers.RetinaNetImageConverter(image_size=(SIZE, SIZE), bounding_box_format="xyxy")
model = keras_hub.models.RetinaNetObjectDetector(
    backbone=backbone,
    anchor_generator=anchors,
    num_classes=4,
    preprocessor=keras_hub.models.RetinaNetObjectDetectorPreprocessor(image_converter=converter),
)
model.compile(optimizer=keras.optimizers.SGD(0.01, momentum=0.9, global_clipnorm=10.0), jit_compile=False)


def example(number):
    count = tf.cast(number % 3 + 1, tf.int32)
    boxes = tf.tile([[10.0, 10.0, 60.0, 80.0]], [count, 1])
    return tf.zeros((SIZE, SIZE, 3)), {"boxes": boxes, "labels": tf.ones([count], tf.int32)}


def pad(image, objects):
    missing = BOXES - tf.shape(objects["boxes"])[0]
    boxes = tf.ensure_shape(tf.pad(objects["boxes"], [[0, missing], [0, 0]], constant_values=-1.0), (BOXES, 4))
    labels = tf.ensure_shape(tf.pad(objects["labels"], [[0, missing]], constant_values=-1), (BOXES,))
    return image, {"boxes": boxes, "labels": labels}


data = tf.data.Dataset.range(64).map(example).map(pad).batch(args.batch_size, drop_remainder=True)
model.fit(data, validation_data=data.take(2), epochs=args.epochs, callbacks=[keras.callbacks.EarlyStopping("loss")])
