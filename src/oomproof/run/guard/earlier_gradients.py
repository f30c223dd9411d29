"""Gradients of earlier batches, while those of another one are made: a pass that fails must not spoil them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch


@contextmanager
def set_aside(parameters: Iterable[torch.nn.Parameter]) -> Iterator[None]:
    """Parameters have no gradients inside; afterwards they have both, and after an error the earlier ones alone."""
    earlier = [(parameter, parameter.grad) for parameter in parameters if parameter.grad is not None]
    for parameter, _ in earlier:
        parameter.grad = None
    try:
        yield
    except BaseException:
        for parameter, gradient in earlier:
            parameter.grad = gradient
        raise
    for parameter, gradient in earlier:
        assert gradient is not None
        new, parameter.grad = parameter.grad, gradient
        if new is not None:
            gradient.add_(new)
