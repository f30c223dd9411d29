"""Fewer channels: the same network, narrower."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def slim(model: Any, factor: float, forward: Callable[[Any], Any]) -> Any:
    """Leaves about ``factor`` of the channels of every inner layer of a PyTorch model, those with the largest weights.

    ``forward(model)`` runs one forward pass up to the loss; it is run on tensors without content, so a pass of the wide
    model need not fit. The model is changed and returned. Make the optimizer afterwards.
    """
    from oomproof.run.torch.slim import slim as cut
    from oomproof.trace.torch.tracer import Tracer

    return cut(model, forward, factor, Tracer)
