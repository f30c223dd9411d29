"""LBFGS remembers its last updates: two vectors as long as all weights for each, a hundred of them unless it is told
otherwise. A trace of two steps sees few; a training has all of them before long."""

from __future__ import annotations

import torch

_HISTORY = ("old_dirs", "old_stps")
_REST = "rest of the history"


def fill_history(optimizer: torch.optim.Optimizer) -> None:
    """Puts what is still missing beside the optimizer's state, which itself stays as its first step has left it."""
    if not isinstance(optimizer, torch.optim.LBFGS):
        return
    group = optimizer.param_groups[0]
    weights = group["params"]
    state = optimizer.state[weights[0]]
    if _REST in state:
        return
    length = sum(weight.numel() * (2 if weight.is_complex() else 1) for weight in weights)
    missing = sum(int(group["history_size"]) - len(state.get(name) or ()) for name in _HISTORY)
    state[_REST] = [torch.empty(length, dtype=weights[0].dtype, device=weights[0].device) for _ in range(missing)]
