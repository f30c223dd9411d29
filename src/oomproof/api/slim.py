"""Fewer channels: the same network, narrower."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oomproof.errors import InputError


def slim(model: Any, factor: float, forward: Callable[[Any], Any] | None = None) -> Any:
    """Leaves about ``factor`` of the channels of every inner layer of a PyTorch model, those with the largest weights.

    ``forward(model)`` runs one forward pass up to the loss; it is run on tensors without content, so a pass of the wide
    model need not fit. The model is changed and returned. Make the optimizer afterwards.

    Of a Keras model (Functional or Sequential) it makes a narrower copy, with new weights, compiled as the model is;
    it needs no ``forward``.
    """
    from oomproof.sources.keras.installed import is_model

    if is_model(model):
        from oomproof.changes.keras.slim import slim as narrower

        return narrower(model, factor)
    if forward is None:
        raise InputError("a PyTorch model needs forward: slim(model, 0.5, lambda net: loss(net, batch))")
    from oomproof.changes.torch.slim import slim as cut
    from oomproof.trace.torch.tracer import Tracer

    return cut(model, forward, factor, Tracer)
