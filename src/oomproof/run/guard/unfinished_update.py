"""Adam's update of a parameter, gone on with where memory ran out in its middle, so that nothing need be copied before.

Once state exists, what Adam and AdamW allocate (torch/optim/adam.py and adamw.py, PyTorch 2.4 to 2.14, one by one and
list-at-once) follows from values that are not written to afterwards: gradients, and moments that are done. So the same
code can be run again for one parameter, with the writes that were done already left out. PyTorch counts writes to each
tensor, and its count of one whole update is looked at before it is relied on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from oomproof.changes.torch.some_parameters import Group
from oomproof.frameworks.torch import TorchDispatchMode, version_of
from oomproof.run.guard.failures import CaughtFailure, attempt, free_memory

UPDATE = "the update"
_WRITES = {"step": 1, "exp_avg": 1, "exp_avg_sq": 2}
"""to each tensor of a parameter's state in one update"""


def can_go_on(optimizer: torch.optim.Optimizer, group: Group) -> bool:
    """Whether this is a form of update that can be gone on with."""
    return (
        type(optimizer) in (torch.optim.Adam, torch.optim.AdamW)
        and not (group["fused"] or group["amsgrad"] or group["capturable"] or group["differentiable"])
        and not any(torch.is_tensor(each) for each in (group["lr"], group["weight_decay"], *group["betas"]))
        and not any(parameter.is_complex() for parameter in group["params"])
    )


def count_writes(optimizer: torch.optim.Optimizer, parameter: torch.Tensor) -> dict[str, int]:
    """How often the parameter (under an empty name) and its state were written to so far."""
    state = optimizer.state.get(parameter) or {}
    counts = {name: version_of(each) for name, each in state.items() if torch.is_tensor(each)}
    return {"": version_of(parameter), **counts}


def whole_update(optimizer: torch.optim.Optimizer, group: Group) -> dict[str, int]:
    """The writes of one whole update."""
    decoupled = type(optimizer) is torch.optim.AdamW or group.get("decoupled_weight_decay", False)
    return {"": 2 if decoupled and group["weight_decay"] else 1, **_WRITES}


def writes_since(
    optimizer: torch.optim.Optimizer, parameter: torch.Tensor, before: Mapping[str, int]
) -> dict[str, int]:
    return {name: count - before.get(name, 0) for name, count in count_writes(optimizer, parameter).items()}


class LeavingOut(TorchDispatchMode):  # type: ignore[misc]  # PyTorch has no types for it
    """While code is run again of which the writes in ``done`` are done: operations that write in place to these tensors
    are left out, as often as that says. ``done`` goes on counting, since list-at-once operations count twice while a
    mode is entered (PyTorch 2.14)."""

    def __init__(self, tensors: Mapping[str, torch.Tensor], done: Mapping[str, int]) -> None:
        super().__init__()
        self.done = dict(done)
        self._left = dict(done)
        self._names = {id(tensors[name]): name for name in done}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = self._names.get(id(_find_written(func, args)))
        if name is None:
            return func(*args, **(kwargs or {}))
        if self._left[name] > 0:
            self._left[name] -= 1
            return args[0] if func._schema.returns else None
        found = func(*args, **(kwargs or {}))
        self.done[name] += 1
        return found


def leave_out(optimizer: torch.optim.Optimizer, parameter: torch.Tensor, done: Mapping[str, int]) -> LeavingOut:
    """For an update of this parameter alone."""
    return LeavingOut({"": parameter, **optimizer.state[parameter]}, done)


def update_average(average: Any, model: torch.nn.Module, device: torch.device) -> CaughtFailure | None:
    """``AveragedModel.update_parameters``, which writes once to each of its tensors; gone on with after a failure."""
    tensors = {**dict(average.named_parameters()), **dict(average.named_buffers())}
    before = {name: version_of(tensor) for name, tensor in tensors.items()}
    _, failure = attempt(UPDATE, lambda: average.update_parameters(model))
    if failure is None:
        return None
    free_memory(device)
    with LeavingOut(tensors, {name: version_of(tensor) - before[name] for name, tensor in tensors.items()}):
        return attempt(UPDATE, lambda: average.update_parameters(model))[1]


def _find_written(func: Any, args: Any) -> Any:
    """The tensor that an operation writes to, its first argument; of a list, the first, since it is done as a whole."""
    first = func._schema.arguments[0] if func._schema.arguments else None
    if first is None or first.alias_info is None or not first.alias_info.is_write:
        return None
    return args[0][0] if isinstance(args[0], (list, tuple)) else args[0]
