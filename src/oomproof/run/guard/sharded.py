"""Several processes that share one model's parameters (FSDP2): gathered before a step, reduced after it.

fully_shard gathers parameters and reduces gradients module by module, so a process that fails in the middle leaves the
others waiting. Here all parameters are gathered before the passes and stay until all processes have met, and gradients
are exchanged after that. It takes the memory of whole parameters and gradients for the time of a step; what stays
sharded is the optimizer's state. After a failure all processes begin again together.
"""

from __future__ import annotations

import torch
from torch import distributed

from oomproof.errors import InputError, OutOfMemory
from oomproof.frameworks.torch_sharded import (
    find_sharded_modules,
    forget_iteration,
    reduce_gradients,
    root_state,
    start_sharding,
)
from oomproof.run.guard.diagnosis import describe_lost_gather
from oomproof.run.guard.failures import attempt, free_memory
from oomproof.run.guard.lost_process import collective
from oomproof.run.guard.protected_update import INTACT
from oomproof.run.guard.ranks import GOOD, STOP, Alone

_NONE = -(1 << 40)


class Sharded(Alone):
    together = True

    def __init__(self, model: torch.nn.Module, device: torch.device) -> None:
        self.model, self.modules = model, find_sharded_modules(model)
        if self.modules[0] is not model:
            raise InputError("Guard wants fully_shard(model) called on the whole model too, after its parts")
        self._state = root_state(model)
        start_sharding(self._state)
        self.group = next(p for p in model.parameters() if hasattr(p, "device_mesh")).device_mesh.get_group()
        self._told = torch.zeros(2, dtype=torch.int64, device=device)
        self._root = self.modules[0]
        self._sizes = [p.numel() * p.element_size() for p in model.parameters()]
        """bytes of whole parameters: a sharded one tells its whole shape"""
        self._whole = sum(self._sizes)
        self._root.set_requires_gradient_sync(False)
        self._root.set_reshard_after_forward(False)
        self._root.set_reshard_after_backward(False)

    def gather(self) -> None:
        """All find out together whether there is room for whole parameters before any begins to gather: one that
        fails in the middle of it leaves the others waiting, until their time-out."""
        self.refuse_if_lost()
        for module in self.modules:
            module.reshard()
        _, failure = attempt("gathering parameters", self._find_room)
        if failure is not None:
            free_memory(self._told.device)
            _, failure = attempt("gathering parameters", self._find_room)
        worst, _ = self.meet(GOOD if failure is None else STOP, None)
        if worst != GOOD:
            raise OutOfMemory(
                f"whole parameters ({self._whole / (1 << 20):.0f} MiB) do not fit beside what is held "
                f"{'here' if failure else 'in another process'}, and all processes stop; {INTACT}. Next: a smaller "
                "model, fewer trained parameters, or fully_shard without Guard, which gathers layer by layer"
            )
        _, failure = attempt("gathering parameters", self._gather)
        if failure is not None:  # others are in the middle of it and wait: they end when this process does
            self.lost = OutOfMemory(describe_lost_gather(failure))
            raise self.lost

    def _find_room(self) -> None:
        """As much as gathering takes: every whole parameter, and the largest of them once more on its way."""
        sizes = [*self._sizes, max(self._sizes, default=0)]
        _ = [torch.empty(size, dtype=torch.uint8, device=self._told.device) for size in sizes]

    @collective
    def _gather(self) -> None:
        for module in self.modules:
            module.unshard()

    def forget(self) -> None:
        forget_iteration(self._state)
        for parameter in self.model.parameters():
            parameter.grad = None

    @collective
    def meet(self, fared: int, largest: int | None) -> tuple[int, int | None]:
        self._told[0], self._told[1] = fared, _NONE if largest is None else -largest
        distributed.all_reduce(self._told, distributed.ReduceOp.MAX, self.group)
        worst, least = self._told.tolist()
        return worst, None if least == _NONE else -least

    @collective
    def exchange(self) -> None:
        self._root.set_requires_gradient_sync(True)
        reduce_gradients(self._state)
        self._root.set_requires_gradient_sync(False)
        for module in self.modules:
            module.reshard()
