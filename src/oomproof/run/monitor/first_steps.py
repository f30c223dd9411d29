"""The first real steps against the forecast: a gap that is named then is a death that is not a surprise later."""

from __future__ import annotations

from oomproof.memory.forecast import Forecast

FIRST = 3
"""steps after which optimizer state, gradients and library workspaces are all there"""
_GIB = 1 << 30


def hold_against(forecast: Forecast, peak: int) -> str:
    """Empty where the peak of the first steps (bytes of tensors) is within the forecast's range."""
    expected = forecast.allocated
    if expected.low <= peak <= expected.high:
        return ""
    above = peak > expected.high
    beyond = (peak - expected.high) if above else (expected.low - peak)
    return (
        f"the first {FIRST} steps took {peak / _GIB:.2f} GiB, {beyond / _GIB:.2f} GiB {'above' if above else 'below'} "
        f"the forecast's {expected.low / _GIB:.2f} to {expected.high / _GIB:.2f} GiB: "
        + (
            "their images, boxes or settings are not those that were forecast; see `oomproof measure`"
            if above
            else "their batches may be smaller than those to come"
        )
    )
