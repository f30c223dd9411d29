"""torchvision's models by name."""
