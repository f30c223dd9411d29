"""Several processes that train one model: each makes its own gradients, then all decide together what becomes of them.

DistributedDataParallel exchanges gradients while backward runs, so a process that fails there leaves the others
waiting for ever. Here forward and backward talk to nobody: the model inside is run. Processes meet when each has its
gradients or has given up; what they tell each other then decides for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from oomproof.errors import InputError
from oomproof.frameworks.torch import copy_lists, is_dense
from oomproof.frameworks.torch_sharded import find_sharded_modules
from oomproof.run.guard.failures import attempt
from oomproof.run.guard.lost_process import Meeting, collective

GOOD, RETRY, CLIMB, STOP = 0, 1, 2, 3
"""how a process fared: it has its gradients; it would try another way, with all others; it needs a rung that all must
take; it cannot go on"""
_BUCKET = 25 << 20
"""bytes that are exchanged at a time, as DistributedDataParallel does"""


class Alone(Meeting):
    """One process: what it decides is decided."""

    together = False
    """whether a process that failed may not try again on its own"""

    def share_buffers(self) -> None:
        pass

    def gather(self) -> None:
        pass

    def forget(self) -> None:
        pass

    def meet(self, fared: int, largest: int | None) -> tuple[int, int | None]:
        return fared, largest

    def exchange(self) -> None:
        pass


class Ranks(Alone):
    """The processes of a DistributedDataParallel model. What is told and exchanged has its memory from the start: to
    tell that memory ran out must not take any."""

    def __init__(self, model: DistributedDataParallel, device: torch.device) -> None:
        self.model, self.group = model, model.process_group
        self.count = distributed.get_world_size(self.group)
        self.parameters = [p for p in model.module.parameters() if p.requires_grad]
        self._told = torch.zeros(2 + 2 * len(self.parameters), dtype=torch.int64, device=device)
        kinds = {t.dtype for t in (*self.parameters, *model.module.buffers())}
        self._flat = {kind: torch.empty(_BUCKET // kind.itemsize, dtype=kind, device=device) for kind in kinds}

    @collective
    def share_buffers(self) -> None:
        """As DistributedDataParallel does before each forward pass: the first process's buffers for all."""
        if self.model.broadcast_buffers:
            first = distributed.get_global_rank(self.group, 0)
            self._in_buckets(
                self.model.module.buffers(), lambda flat: distributed.broadcast(flat, first, group=self.group)
            )

    def meet(self, fared: int, largest: int | None) -> tuple[int, int | None]:
        """The worst of how all fared, and the smallest of their micro-batches.

        A parameter that only some processes have used counts as zero for the others, as for DistributedDataParallel.
        """
        own = [p.grad is not None for p in self.parameters]
        worst, least, has = self._tell(fared, largest, own)
        some = [at_most != at_least for at_most, at_least in has]
        if worst == GOOD and any(some):
            lacking = [p for p, uneven in zip(self.parameters, some, strict=True) if uneven and p.grad is None]
            _, failure = attempt("gradients of others", lambda: _fill(lacking))
            worst, least, _ = self._tell(GOOD if failure is None else STOP, largest, own)
        return worst, least

    @collective
    def _tell(self, fared: int, largest: int | None, own: list[bool]) -> tuple[int, int | None, list[tuple[int, int]]]:
        """The worst, the smallest, and for every parameter whether any and whether each process has its gradient."""
        none = -(1 << 40)
        told = [fared, none if largest is None else -largest, *map(int, own), *(-int(has) for has in own)]
        self._told.copy_(torch.tensor(told))
        distributed.all_reduce(self._told, distributed.ReduceOp.MAX, self.group)
        worst, least, *has = self._told.tolist()
        half = len(own)
        return worst, None if least == none else -least, [(has[i], -has[half + i]) for i in range(half)]

    @collective
    def exchange(self) -> None:
        """Gradients become the mean of all processes'."""
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        self._in_buckets(gradients, self._average)

    def _average(self, flat: torch.Tensor) -> None:
        distributed.all_reduce(flat, group=self.group)
        flat.div_(self.count)

    def _in_buckets(self, tensors: Iterable[torch.Tensor], action: Callable[[torch.Tensor], Any]) -> None:
        """The action on all numbers of these tensors, as many at a time as a bucket holds."""
        kinds: dict[torch.dtype, list[torch.Tensor]] = {}
        for tensor in tensors:
            if tensor.numel():
                kinds.setdefault(tensor.dtype, []).append(_in_memory_order(tensor))
        for kind, flats in kinds.items():
            bucket = self._flat[kind]
            pieces = [piece for flat in flats for piece in flat.split(len(bucket))]
            while pieces:
                some, filled = [], 0
                while pieces and filled + len(pieces[0]) <= len(bucket):
                    some.append(pieces.pop(0))
                    filled += len(some[-1])
                places = bucket[:filled].split([len(piece) for piece in some])
                copy_lists(list(places), some)
                action(bucket[:filled])
                copy_lists(some, list(places))


def _in_memory_order(tensor: torch.Tensor) -> torch.Tensor:
    """A flat view: whatever the layout, it is the same in every process."""
    tensor = tensor.detach()
    if tensor.is_contiguous():
        return tensor.view(-1)
    if not is_dense(tensor):
        raise InputError(f"a gradient of shape {tuple(tensor.shape)} has gaps in memory; Guard cannot exchange it")
    return tensor.as_strided((tensor.numel(),), (1,))


def _fill(parameters: list[torch.Tensor]) -> None:
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)


def ranks_of(model: torch.nn.Module, device: torch.device) -> Alone:
    if isinstance(model, torch.nn.DataParallel):
        raise InputError("Guard takes a model or DistributedDataParallel; DataParallel splits batches by itself")
    if find_sharded_modules(model):
        from oomproof.run.guard.sharded import Sharded

        return Sharded(model, device)
    return Ranks(model, device) if isinstance(model, DistributedDataParallel) else Alone()
