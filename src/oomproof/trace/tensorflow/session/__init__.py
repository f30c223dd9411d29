"""Follows a script that trains with TensorFlow: its functions are captured when they are called, and not run."""
