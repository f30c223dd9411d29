"""Steps that are written with TensorFlow itself, as jobs."""
