"""The log of a search: every attempt with its outcome, and why it was taken or passed over."""

from __future__ import annotations

from collections.abc import Sequence

from oomproof.memory.forecast import Forecast
from oomproof.plan.confirmed import Confirmed
from oomproof.plan.estimates.estimates import Estimates
from oomproof.plan.estimates.room import at_ease
from oomproof.plan.estimates.traced_step import TracedStep
from oomproof.plan.estimates.way import Way
from oomproof.plan.plan import Attempt

GIB = 1 << 30


def as_it_is(forecast: Forecast, estimates: Estimates, estimated: bool) -> Attempt:
    reason = f"ways may have {estimates.room.live / GIB:.2f} GiB of live blocks"
    return Attempt(
        "as it is",
        "estimate" if estimated else "full trace",
        forecast.on_device_outcome,
        reason,
        device=forecast.on_device.high,
        time=1.0,
    )


def cannot_run(tried: str, error: Exception) -> Attempt:
    """In a trace with few images."""
    return Attempt(tried, "few images", "cannot run", str(error))


def nothing_fits(steps: Sequence[TracedStep], estimates: Estimates) -> Attempt:
    """None of the ways that follow from some steps."""
    kinds = dict.fromkeys(" and ".join(knob.name for knob, _ in step.turned) or "as it is" for step in steps)
    reason = f"by estimate no way stays within {estimates.room.live / GIB:.2f} GiB of live blocks"
    return Attempt(f"every way from these traces: {'; '.join(kinds)}", "estimate", "nothing fits", reason)


def note_refusal(way: Way, estimates: Estimates, error: Exception) -> Attempt:
    """By the job, in a full trace."""
    device, time = estimates.room.on_device(way.peak), estimates.time(way.seconds)
    return Attempt(way.words, "full trace", "cannot run", str(error), device, time_estimated=time)


def note_full_trace(confirmed: Confirmed, estimates: Estimates, best: Confirmed | None) -> Attempt:
    """``best`` is the best before this one."""
    way, forecast = confirmed.way, confirmed.forecast
    return Attempt(
        confirmed.words,
        "full trace",
        forecast.on_device_outcome,
        _reason(confirmed, best),
        estimates.room.on_device(way.peak),
        forecast.on_device.high,
        estimates.time(way.seconds),
        estimates.time(confirmed.seconds),
    )


def _reason(confirmed: Confirmed, best: Confirmed | None) -> str:
    forecast = confirmed.forecast
    if not forecast.fits:
        over = f"{max(0, forecast.excess) / GIB:.2f} GiB too much at worst"
        return f"{over}; what is estimated from this step is taken {confirmed.correction:.2f} times from now on"
    if best is not None and best.price <= confirmed.price:
        return "fits, but costs more than the best so far"
    if at_ease(forecast):
        return "the best of what should fit: taken"
    return "fits, but the allocator has to give cached blocks back: the best so far, and something easier is looked for"
