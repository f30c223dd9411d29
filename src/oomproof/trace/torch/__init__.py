"""PyTorch: fake tensors with lazy values. Imports memory/ and torch; knows no source."""
