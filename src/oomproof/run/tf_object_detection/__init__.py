"""``oomproof run pipeline.config``: a training of the TensorFlow Object Detection API, with what the API lacks.

The API's own model, losses, preprocessing and checkpoints, in a process of its own (``child.py``), which ``process.py``
starts.
"""
