"""A training step becomes a Timeline, without its arithmetic being done.

One folder per framework; imports memory/ and the framework.
"""
