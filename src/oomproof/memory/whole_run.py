"""A run's training steps, and after them its validation, in one allocator.

What a training step has left in the cache does not always serve the validation, so that the process holds more after
its first validation than either of the two would take alone. Trainings that print what is reserved show it: yolov8s of
Ultralytics on a V100 goes from 6.96 to 8.71 GiB after its first epoch.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from oomproof.memory.cards.devices import Device
from oomproof.memory.forecast import Forecast, Range
from oomproof.memory.lasting import with_lasting
from oomproof.memory.make_forecast import terms
from oomproof.memory.runtime import Runtime
from oomproof.memory.scratch import priced
from oomproof.memory.timeline import PHASES, Timeline


def after_training(
    validation: Forecast, steps: tuple[Timeline, Timeline], device: Device, runtime: Runtime
) -> Forecast:
    """The forecast of a validation, with what the allocator still holds of the training; ``steps``: of the training and
    of the validation. It does not change whether the run gets through: what is only cached is given back before memory
    runs out."""
    trained, validated = (_with_prices(each, device, runtime) for each in steps)
    held = terms(steps[1], device, runtime)
    if held.replay is None or held.keeps:
        return validation
    likely = held.replay(put_behind(trained[0], validated[0]), held.room).reserved
    worst = held.replay(put_behind(trained[1], validated[1]), held.room_at_worst).reserved * held.margin
    own, around = validation.reserved, held.around
    most = max(own.high, min(int(worst), device.budget - around.high))
    reserved = Range(max(own.expected, min(likely, most)), own.low, most)
    on_device = Range(
        reserved.expected + around.expected,
        validation.on_device.low,
        max(validation.on_device.high, reserved.high + around.high),
    )
    return replace(validation, reserved=reserved, on_device=on_device)


def _with_prices(step: Timeline, device: Device, runtime: Runtime) -> tuple[Timeline, Timeline]:
    """With the workspaces that are expected, and with the largest."""
    base = with_lasting(step, device, runtime)
    expected, _, high = (base.with_scratch(each) for each in priced(base, terms(step, device, runtime).prices))
    return expected, high


def put_behind(training: Timeline, validation: Timeline) -> Timeline:
    """One history: all of the training, and what is born in the validation. The model is that of the training."""
    later = validation.mark_tick[validation.mark_phase == PHASES.index("validation")]
    start = int(later[0]) if len(later) else 0
    rows = np.flatnonzero(validation.born >= start)
    shift, end = training.ticks - start, training.ticks - start + validation.ticks

    def joined(name: str, more: int = 0) -> np.ndarray:
        return np.concatenate([getattr(training, name), getattr(validation, name)[rows] + more])

    died = np.where(training.died >= training.ticks, end, training.died)
    return replace(
        training,
        born=joined("born", shift),
        died=np.concatenate([died, validation.died[rows] + shift]),
        bytes=joined("bytes"),
        kind=joined("kind"),
        phase=joined("phase"),
        owner=joined("owner", len(training.owners)),
        op=joined("op", len(training.ops)),
        owners=(*training.owners, *validation.owners),
        ops=(*training.ops, *validation.ops),
        mark_tick=np.concatenate([training.mark_tick, [training.ticks]]),
        mark_phase=np.concatenate([training.mark_phase, [PHASES.index("validation")]]),
        ticks=end,
    )
