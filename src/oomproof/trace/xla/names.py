"""Which layer and which phase an operation of a compiled program belongs to, by the name its framework gave it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from oomproof.trace.xla.assignment import Place

_WRAPPERS = re.compile(r"\b(?:jit|pjit|jvp|vmap|transpose|checkpoint|remat)\(|\)")
"""JAX writes what it does around a scope: transpose(jvp(conv2d)) is the backward pass of conv2d"""
_BACKWARD_OF_TENSORFLOW = "gradient_tape/"


def in_tensorflow(scopes: Mapping[str, str], optimizer: str) -> Place:
    """``scopes``: name scope -> layer, as the trace has noted them."""

    def place(name: str) -> tuple[str, str]:
        backward = name.startswith(_BACKWARD_OF_TENSORFLOW)
        parts = name.removeprefix(_BACKWARD_OF_TENSORFLOW).split("/")
        ends = range(len(parts), 0, -1)
        owner = next((scopes[inner] for end in ends if (inner := "/".join(parts[:end])) in scopes), "")
        return _phase(parts, optimizer, backward), owner

    return place


def in_jax(layers: Iterable[str], optimizer: str) -> Place:
    """``layers``: the paths of all layers, with dots."""
    by_name: dict[str, str] = {}
    for path in layers:
        by_name.setdefault(path.split(".")[-1], path)

    def place(name: str) -> tuple[str, str]:
        parts = [part for part in _WRAPPERS.sub("", name).split("/") if part]
        owner = next((by_name[part] for part in reversed(parts) if part in by_name), "")
        return _phase(parts, optimizer, "transpose(jvp(" in name), owner

    return place


def _phase(parts: list[str], optimizer: str, backward: bool) -> str:
    if backward:
        return "backward"
    if not any(parts):
        return ""
    return "optimizer" if optimizer in parts else "forward"
