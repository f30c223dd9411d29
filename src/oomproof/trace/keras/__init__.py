"""A compiled Keras model's training step as a Timeline: one file for each way in which Keras may run it."""
