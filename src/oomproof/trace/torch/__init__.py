"""PyTorch: fake tensors with lazy values. Imports memory/ and torch; knows no source."""

from oomproof.frameworks.side_by_side import before_torch

before_torch()
