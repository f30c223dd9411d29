"""Several GPUs: MirroredStrategy packs the gradients of a replica, exchanges them, and unpacks them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from oomproof.memory.timeline import KINDS, PHASES, Timeline

OWNER = "all-reduce of gradients"


def with_exchange(timeline: Timeline) -> Timeline:
    """One more set of gradients while a step updates: seen in traced steps of MirroredStrategy, whose gradients are
    copied into packs (ConcatV2) before they are exchanged and split again."""
    weights = int(timeline.bytes[timeline.kind == KINDS.index("parameter")].sum())
    optimizer = PHASES.index("optimizer")
    updates = timeline.mark_phase == optimizer
    if not weights or not updates.any():
        return timeline
    begin = timeline.mark_tick[updates]
    end = np.append(timeline.mark_tick[1:], timeline.ticks)[updates]
    begin, end = begin[end > begin], end[end > begin]
    owners, ops = (*timeline.owners, OWNER), (*timeline.ops, "CollectiveReduceV2")
    facts = {
        "bytes": weights,
        "kind": KINDS.index("gradient"),
        "phase": optimizer,
        "owner": len(owners) - 1,
        "op": len(ops) - 1,
    }
    added = {"born": begin, "died": end, **{name: np.full(len(begin), value) for name, value in facts.items()}}
    joined = {name: np.concatenate([getattr(timeline, name), each]) for name, each in added.items()}
    order = np.argsort(joined["born"], kind="stable")
    columns: dict[str, Any] = {name: column[order] for name, column in joined.items()}
    return replace(timeline, owners=owners, ops=ops, **columns)
