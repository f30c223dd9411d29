"""Transfer learning: the head first, then everything."""

import keras
import numpy as np
from keras import layers

IMAGE = 64
BATCH = 8

images = np.random.rand(48, IMAGE, IMAGE, 3).astype("float32")
labels = np.eye(7)[np.random.randint(0, 7, 48)]

base = keras.Sequential([keras.Input((IMAGE, IMAGE, 3))], name="base")
for filters in (16, 32, 64):
    base.add(layers.Conv2D(filters, 3, padding="same", use_bias=False))
    base.add(layers.BatchNormalization())
    base.add(layers.ReLU())
    base.add(layers.MaxPooling2D())
base.trainable = False
model = keras.Sequential([base, layers.GlobalAveragePooling2D(), layers.Dense(7, activation="softmax")])
model.compile("adam", "categorical_crossentropy", metrics=["accuracy"], jit_compile=False)
first = model.fit(images, labels, batch_size=BATCH, epochs=5, validation_split=0.25)
print("head:", first.history["val_accuracy"][-1], model.evaluate(images, labels, verbose=0))

base.trainable = True
model.compile(keras.optimizers.Adam(1e-5), "categorical_crossentropy", metrics=["accuracy"], jit_compile=False)
model.fit(images, labels, batch_size=BATCH, epochs=first.epoch[-1] + 10, initial_epoch=first.epoch[-1])
model.save_weights("fine.weights.h5")
