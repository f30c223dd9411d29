"""Several processes that share one model's parameters (FSDP2): gathered before a step, reduced after it.

fully_shard gathers parameters and reduces gradients module by module, so a process that fails in the middle leaves the
others waiting. Here all parameters are gathered before the passes and stay until all processes have met, and gradients
are exchanged after that. It takes the memory of whole parameters and gradients for the time of a step; what stays
sharded is the optimizer's state. After a failure all processes begin again together.
"""

from __future__ import annotations

import torch
from torch import distributed

from oomproof.errors import InputError
from oomproof.frameworks.torch_sharded import (
    forget_iteration,
    reduce_gradients,
    root_state,
    sharded_modules,
    start_sharding,
)
from oomproof.run.guard.ranks import Alone

_NONE = -(1 << 40)


class Sharded(Alone):
    together = True

    def __init__(self, model: torch.nn.Module, device: torch.device) -> None:
        self.model, self.modules = model, sharded_modules(model)
        if self.modules[0] is not model:
            raise InputError("Guard wants fully_shard(model) called on the whole model too, after its parts")
        self._state = root_state(model)
        start_sharding(self._state)
        self.group = next(p for p in model.parameters() if hasattr(p, "device_mesh")).device_mesh.get_group()
        self._told = torch.zeros(2, dtype=torch.int64, device=device)
        self._root = self.modules[0]
        self._root.set_requires_gradient_sync(False)
        self._root.set_reshard_after_forward(False)
        self._root.set_reshard_after_backward(False)

    def gather(self) -> None:
        for module in self.modules:
            module.reshard()
            module.unshard()

    def forget(self) -> None:
        forget_iteration(self._state)
        for parameter in self.model.parameters():
            parameter.grad = None

    def meet(self, fared: int, largest: int | None) -> tuple[int, int | None]:
        self._told[0], self._told[1] = fared, _NONE if largest is None else -largest
        distributed.all_reduce(self._told, distributed.ReduceOp.MAX, self.group)
        worst, least = self._told.tolist()
        return worst, None if least == _NONE else -least

    def exchange(self) -> None:
        self._root.set_requires_gradient_sync(True)
        reduce_gradients(self._state)
        self._root.set_requires_gradient_sync(False)
        for module in self.modules:
            module.reshard()
