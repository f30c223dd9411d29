"""Models of timm by name."""
