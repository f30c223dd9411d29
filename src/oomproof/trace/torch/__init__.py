"""PyTorch: fake tensors with lazy values. Imports memory/ and torch; knows no source."""

from oomproof.run.side_by_side import before_torch

before_torch()
