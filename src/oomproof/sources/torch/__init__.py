"""PyTorch jobs made of plain pieces."""
