"""Batch normalisation that keeps the statistics, scale and shift it has: the ``freeze_batchnorm`` setting."""

from __future__ import annotations

import torch

from oomproof.frameworks.torch import BatchNormBase


def freeze_batchnorm(model: torch.nn.Module) -> list[str]:
    """Freezes every BatchNorm layer, also against a later ``model.train()``; returns their paths."""
    found = []
    for path, layer in model.named_modules():
        if isinstance(layer, BatchNormBase) and layer.track_running_stats:  # else there is nothing to keep
            layer.eval()
            layer.train = _StaysFrozen(layer)
            layer.requires_grad_(False)
            found.append(path)
    return found


class _StaysFrozen:
    """``train()`` of a frozen layer. An object rather than a function, so that a copied model copies it along."""

    def __init__(self, layer: torch.nn.Module) -> None:
        self.layer = layer

    def __call__(self, mode: bool = True) -> torch.nn.Module:
        return self.layer
