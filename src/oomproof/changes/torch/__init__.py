"""The knobs of PyTorch jobs as code: the very code that the tracer traces runs in the user's training."""

from oomproof.frameworks.side_by_side import before_torch

before_torch()
