"""Validation in the allocator that training leaves behind.

PyTorch keeps what training has freed. Validation's blocks come out of these segments where they fit into one, and
beside them where they do not; only on a full device does the allocator give segments back.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from oomproof.memory.cards.devices import Device
from oomproof.memory.forecast import Forecast
from oomproof.memory.make_forecast import build_forecast
from oomproof.memory.runtime import Runtime
from oomproof.memory.timeline import KINDS, PHASES, Calls, Ints, Timeline

_INPUT, _VALIDATION = KINDS.index("input"), PHASES.index("validation")


def in_cache(
    validation: Forecast, steps: tuple[Timeline, Timeline], training: Forecast, device: Device, runtime: Runtime
) -> Forecast:
    """The forecast of a validation, with what the device holds when it follows the training; ``steps`` are both as
    they were traced."""
    if any(step.about.allocator != "cuda" or step.about.dialect != "cuda" for step in steps):
        return validation
    run = build_forecast(follow(*steps), device, runtime, training.job, training.settings)
    found = replace(validation, after_training=run.on_device)
    if training.shortage is None and run.shortage is not None:
        found = replace(found, shortage=run.shortage)
    if training.shortage_at_worst is None and run.shortage_at_worst is not None:
        found = replace(found, shortage_at_worst=run.shortage_at_worst)
    return found


def follow(training: Timeline, validation: Timeline) -> Timeline:
    """One history of both. What lives when the training's last step ends lives on, its batch too, as in a loop that
    does not drop it; weights, gradients and optimizer state are there once."""
    start = int(validation.mark_tick[validation.mark_phase == _VALIDATION][0])
    batch = np.flatnonzero((validation.kind == _INPUT) & (validation.born < start) & (validation.died > start))
    rows = np.concatenate([batch, np.flatnonzero(validation.born >= start)])
    shift = training.ticks + len(batch) - start
    end = validation.ticks + shift
    calls = np.flatnonzero(validation.calls.tick >= start)
    marks = validation.mark_tick >= start
    born = np.concatenate([training.ticks + np.arange(len(batch)), validation.born[rows[len(batch) :]] + shift])
    return replace(
        training,
        born=_join_columns(training.born, born),
        died=_join_columns(
            np.where(training.died >= training.ticks, end, training.died), validation.died[rows] + shift
        ),
        bytes=_join_columns(training.bytes, validation.bytes[rows]),
        kind=_join_columns(training.kind, validation.kind[rows]),
        phase=_join_columns(training.phase, np.full(len(rows), _VALIDATION)),
        owner=_join_columns(training.owner, validation.owner[rows] + len(training.owners)),
        op=_join_columns(training.op, validation.op[rows] + len(training.ops)),
        owners=(*training.owners, *validation.owners),
        ops=(*training.ops, *validation.ops),
        shape=_join_columns(training.shape, validation.shape[rows] + len(training.shapes)),
        shapes=(*training.shapes, *validation.shapes),
        calls=Calls(
            _join_columns(training.calls.tick, validation.calls.tick[calls] + shift),
            _join_columns(training.calls.owner, validation.calls.owner[calls] + len(training.owners)),
            _join_columns(training.calls.phase, validation.calls.phase[calls]),
            _join_columns(training.calls.spec, validation.calls.spec[calls] + len(training.calls.specs)),
            (*training.calls.specs, *validation.calls.specs),
        ),
        mark_tick=_join_columns(training.mark_tick, np.where(marks, validation.mark_tick + shift, 0)[marks]),
        mark_phase=_join_columns(training.mark_phase, validation.mark_phase[marks]),
        ticks=end,
    )


def _join_columns(before: Ints, after: Ints) -> Ints:
    return np.concatenate([before, np.asarray(after, dtype=np.int64)])
