"""The device that a step is traced for, where the trace itself depends on it: a compiler makes a plan for one GPU.

Most traces hold for every device and never ask.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from oomproof.memory.cards.devices import Device

_target: ContextVar[Device | None] = ContextVar("target", default=None)


@contextmanager
def tracing_for(device: Device | None) -> Iterator[None]:
    """What is traced inside is for ``device``."""
    token = _target.set(device)
    try:
        yield
    finally:
        _target.reset(token)


def target_device() -> Device | None:
    """The device that is traced for; None where nobody said."""
    return _target.get()
