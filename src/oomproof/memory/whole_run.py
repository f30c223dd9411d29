"""A run's training steps, and after them its validation, in one allocator.

What a training step has left in the cache does not always serve the validation, so that the process holds more after
its first validation than either of the two would take alone. Trainings that print what is reserved show it: yolov8s of
Ultralytics on a V100 goes from 6.96 to 8.71 GiB after its first epoch.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from oomproof.memory.cards.devices import Device
from oomproof.memory.forecast import Forecast
from oomproof.memory.lasting import with_lasting
from oomproof.memory.make_forecast import terms
from oomproof.memory.runtime import Runtime
from oomproof.memory.scratch import priced
from oomproof.memory.timeline import PHASES, Timeline


def cover_both(training: Forecast, steps: tuple[Timeline, Timeline], device: Device, runtime: Runtime) -> Forecast:
    """The forecast of a training whose upper figures also cover what the process holds after its first validation;
    ``steps`` are of the training and of the validation. Whether the run gets through does not change: what is only
    cached is given back before memory runs out, so that no more is taken than there is."""
    held = terms(steps[0], device, runtime)
    if held.replay is None or held.keeps:
        return training
    trained, validated = (_with_largest_scratch(each, device, runtime) for each in steps)
    both = held.replay(put_behind(trained, validated), held.room_at_worst).reserved * held.margin
    high = max(training.reserved.high, min(int(both), device.budget - held.around.high))
    on_device = max(training.on_device.high, high + held.around.high)
    return replace(
        training, reserved=replace(training.reserved, high=high), on_device=replace(training.on_device, high=on_device)
    )


def _with_largest_scratch(step: Timeline, device: Device, runtime: Runtime) -> Timeline:
    base = with_lasting(step, device, runtime)
    _, _, high = priced(base, terms(step, device, runtime).prices)
    return base.with_scratch(high)


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
