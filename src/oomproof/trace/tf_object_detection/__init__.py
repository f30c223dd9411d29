"""Training steps of the TensorFlow Object Detection API as Timelines: its own model, targets, losses and optimizer.

``process.py`` is the parent's side and loads no framework. Everything else runs in a child (``child.py``), because the
API needs Keras 2 where the rest of the world has Keras 3.
"""
