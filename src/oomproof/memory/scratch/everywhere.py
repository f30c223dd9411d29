"""Kernels that are written in tensors of PyTorch, and take the same scratch on every device."""

from __future__ import annotations

from oomproof.memory.scratch.calls import DEFORMED, MATRIX_EXPONENTIAL, PRODUCTS, WRITTEN_OUT, Kernel

_EXPONENTIALS, _FEWEST = 12, 6
"""matrices as large as the argument that its exponential holds at its peak, seen on the CPU (torch 2.14): 12 at norms
that take a polynomial of degree 18, 10 of a batch, 8 and less at norms near zero"""


def price_everywhere(call: Kernel) -> tuple[int, int, int] | None:
    """(expected, low, high); None for kernels that each device has in a form of its own."""
    given = call.elements * call.item
    if call.op == MATRIX_EXPONENTIAL:
        return _EXPONENTIALS * given, _FEWEST * given, _EXPONENTIALS * given
    if call.op in WRITTEN_OUT:
        return given, 0, given
    return (given, given, given) if call.op in DEFORMED or call.op in PRODUCTS else None
