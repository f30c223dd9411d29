"""The frameworks' GPU allocators, replayed event by event: how much they reserve to serve a Timeline's blocks.

One file an allocator, with the rules of its source. Imports nothing but NumPy and the Timeline.
"""
