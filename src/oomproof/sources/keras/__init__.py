"""Keras jobs: saved models, models by name, compiled models in Python, jobs of the user's own. Keras and TensorFlow are
imported inside functions, when a job needs them."""
