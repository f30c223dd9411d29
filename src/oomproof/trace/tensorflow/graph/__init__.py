"""From a function of tensors to the graph that TensorFlow's runtime would execute."""
