"""What the TensorFlow Object Detection API lacks, for its own Keras models: micro-batches, fp16, recomputation.

The tracer builds its step from here and ``oomproof run pipeline.config`` trains with it: what is forecast is what runs.
"""
