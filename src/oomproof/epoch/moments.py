"""The moments of a traced step: how much is live at the most when an operation of a module allocates."""

from __future__ import annotations

import numpy as np

from oomproof.memory.cards.devices import Device
from oomproof.memory.lasting import with_lasting
from oomproof.memory.make_forecast import terms
from oomproof.memory.runtime import Runtime
from oomproof.memory.scratch import price_calls
from oomproof.memory.timeline import PHASES, Timeline

Moment = tuple[str, str, str]
"""phase, module, operation"""


def find_moments(step: Timeline, device: Device, runtime: Runtime) -> dict[Moment, int]:
    """Live bytes at each moment, scratch as expected; the largest of them is the step's peak."""
    held = terms(step, device, runtime)
    base = step if step.about.recorded or not held.caching else with_lasting(step, device, runtime)
    whole = base.with_scratch(price_calls(base, held.prices)[0]).round_up(held.granule)
    live = whole.curve()[whole.born]
    owners, ops = len(whole.owners), len(whole.ops)
    keys, where = np.unique((whole.phase * owners + whole.owner) * ops + whole.op, return_inverse=True)
    most = np.zeros(len(keys), dtype=np.int64)
    np.maximum.at(most, where, live)
    return {
        (PHASES[key // ops // owners], whole.owners[key // ops % owners], whole.ops[key % ops]): int(nbytes)
        for key, nbytes in zip(keys.tolist(), most, strict=True)
    }
