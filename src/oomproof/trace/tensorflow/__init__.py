"""TensorFlow: a train step becomes a graph, the graph an order, the order a Timeline. Nothing of the step is run.

``step.trace_step`` takes any function of tensors, ``keras.trace_keras`` a compiled Keras model. Only capture.py,
grappler.py, reading.py and keras.py know TensorFlow; what comes after them (graph, order, liveness) is plain Python.
"""

from oomproof.trace.tensorflow.trace_step import trace_step

__all__ = ["trace_step"]
