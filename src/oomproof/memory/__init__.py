"""The heart: what a step's blocks of memory mean on a device.

NumPy only; imports no framework and nothing else of oomproof but errors.
"""
