"""``oomproof.Guard``: a training step that goes on when memory runs out, with the same mathematics.

Built on changes/torch, so that a guarded step is the step that was forecast.
"""
