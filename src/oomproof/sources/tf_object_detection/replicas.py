"""Several GPUs: MirroredStrategy packs the gradients of a replica, exchanges them, and unpacks them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from oomproof.memory.timeline import KINDS, PHASES, Timeline

OWNER = "all-reduce of gradients"


def with_exchange(timeline: Timeline) -> Timeline:
    """One more set of gradients, from the first update of a step to its end: seen in traced steps of MirroredStrategy,
    whose gradients are copied into packs (ConcatV2) before they are exchanged and split again."""
    weights = int(timeline.bytes[timeline.kind == KINDS.index("parameter")].sum())
    optimizer = PHASES.index("optimizer")
    starts = timeline.mark_tick[timeline.mark_phase == optimizer]
    if not weights or not len(starts):
        return timeline
    owners = (*timeline.owners, OWNER)
    ops = (*timeline.ops, "CollectiveReduceV2")
    begin = np.array([int(starts[0])])
    one = {
        "born": begin,
        "died": np.array([timeline.ticks]),
        "bytes": np.array([weights]),
        "kind": np.array([KINDS.index("gradient")]),
        "phase": np.array([optimizer]),
        "owner": np.array([len(owners) - 1]),
        "op": np.array([len(ops) - 1]),
    }
    joined = {name: np.concatenate([getattr(timeline, name), each]) for name, each in one.items()}
    order = np.argsort(joined["born"], kind="stable")
    columns: dict[str, Any] = {name: column[order] for name, column in joined.items()}
    return replace(timeline, owners=owners, ops=ops, **columns)
