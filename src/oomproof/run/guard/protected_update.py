"""An optimizer's update that is whole or not at all, though memory may run out in its middle.

Parameters are updated a few at a time. Those of one part are copied first with their state, so a part that fails is put
back and done again; the parts before it stay done. While the optimizer makes its state, which is when memory runs out
in most updates, the copies of all parts are kept, and the whole update can be taken back. SGD writes to a parameter
only when it needs no more memory for it, and fused forms take none at all, so nothing is copied for these: what was
written to is done. Nor is it for Adam once it has its state (unfinished_update.py).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch

from oomproof.changes.torch.some_parameters import Group, only, plain_step, replace_step
from oomproof.errors import CannotDo, OutOfMemory
from oomproof.frameworks.torch import copy_lists, is_dense, version_of
from oomproof.run.guard.failures import CaughtFailure, attempt, free_memory
from oomproof.run.guard.unfinished_update import can_go_on, count_writes, leave_out, whole_update, writes_since

PART = {"cpu": 4 << 20, "": 64 << 20}
"""bytes of parameters that are updated together: on a CPU what stays in its cache from the copy to the update, so that
the copy costs little; elsewhere what keeps a list-at-once kernel busy"""


INTACT = "parameters and optimizer are as before this step"
NOT_INTACT = "some parameters were updated and others were not: go on from a checkpoint"


class UpdateFailed(OutOfMemory):
    """Memory ran out in the update. ``intact``: parameters and state are as before it."""

    def __init__(self, failure: CaughtFailure, intact: bool) -> None:
        state = INTACT if intact else NOT_INTACT
        super().__init__(f"out of memory in {failure.doing}; {state}. It said: {' '.join(failure.text.split())[:300]}")
        self.failure, self.intact = failure, intact


class ProtectedUpdate:
    def __init__(self, optimizer: torch.optim.Optimizer, device: torch.device) -> None:
        self.optimizer, self.device = optimizer, device
        self._plain = plain_step(optimizer, "Guard", "the optimizer as it is")
        self._stepped = False
        self._counted: bool | None = None
        """whether PyTorch counted the writes of an update as expected; None: not seen yet"""
        self._scratch: dict[torch.dtype, torch.Tensor] = {}
        replace_step(optimizer, self._step)

    def _step(self, optimizer: torch.optim.Optimizer, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        done: list[_Part] | None = [] if self._makes_state() else None
        usual = PART.get(self.device.type, PART[""])
        for group in optimizer.param_groups:
            if done is None and _writes_last(optimizer, group):
                self._update_without_copies(group)
                continue
            if done is None and self._counted and can_go_on(optimizer, group) and _has_state(optimizer, group):
                self._update_and_go_on(group)
                continue
            for some in _parts(group, usual):
                self._update(group, some, done)
        self._stepped = True
        return loss

    def _makes_state(self) -> bool:
        """Whether this update is the first, and a parameter has no state yet."""
        state = self.optimizer.state
        return not self._stepped and any(
            p.grad is not None and not state.get(p) for group in self.optimizer.param_groups for p in group["params"]
        )

    def _update_without_copies(self, group: Group) -> None:
        left = [p for p in group["params"] if p.grad is not None]
        for last in (False, False, True):
            before = [version_of(p) for p in left]
            failure = self._run(group, left)
            if failure is None:
                return
            left = [p for p, version in zip(left, before, strict=True) if version_of(p) == version]
            if last or not left:
                break
            free_memory(self.device)
        self._update(group, left, None)

    def _update_and_go_on(self, group: Group) -> None:
        some = [p for p in group["params"] if p.grad is not None]
        before = [count_writes(self.optimizer, p) for p in some]
        if self._run(group, some) is None:
            return
        free_memory(self.device)
        whole = whole_update(self.optimizer, group)
        for parameter, counts in zip(some, before, strict=True):
            self._go_on(group, parameter, writes_since(self.optimizer, parameter, counts), whole)

    def _go_on(self, group: Group, parameter: torch.Tensor, done: Mapping[str, int], whole: Mapping[str, int]) -> None:
        for last in (False, True):
            if done == whole:
                return
            with leave_out(self.optimizer, parameter, done) as rest:
                failure = self._run(group, [parameter])
            if failure is None:
                return
            if last:
                raise UpdateFailed(failure, intact=False)
            done = rest.done
            free_memory(self.device)

    def _run(self, group: Group, some: list[torch.Tensor]) -> CaughtFailure | None:
        def run() -> None:
            with torch.no_grad(), only(self.optimizer, group, some):
                self._plain(self.optimizer)

        return attempt("the update", run)[1]

    def _update(self, group: Group, some: list[torch.Tensor], done: list[_Part] | None) -> None:
        failure = self._once(group, some, done)
        if failure is None:
            return
        free_memory(self.device)
        for parameter in some:  # one at a time: what is needed besides is small then
            failure = self._once(group, [parameter], done)
            if failure is not None:
                free_memory(self.device)
                failure = self._once(group, [parameter], done)
            if failure is not None:
                for part in reversed(done or []):
                    part.put_back()
                raise UpdateFailed(failure, intact=done is not None)

    def _once(self, group: Group, some: list[torch.Tensor], done: list[_Part] | None) -> CaughtFailure | None:
        """Updates these parameters; after a failure they are as they were."""
        scratch = None if done is not None else self._scratch
        part, failure = attempt("the update", lambda: _Part(self.optimizer, some, scratch))
        if failure is not None:
            return failure
        failure = self._run(group, some)
        if failure is not None:
            part.put_back()
            return failure
        if done is not None:
            done.append(part)
        if self._counted is not False and can_go_on(self.optimizer, group):
            whole = whole_update(self.optimizer, group)
            self._counted = all(
                writes_since(self.optimizer, parameter, before) == whole
                for parameter, before in zip(some, part.writes, strict=True)
            )
        return None


class _Part:
    """Some parameters with their state, as they are now: copied into ``scratch``, which is used again for the next
    part, or to the host where they are kept for longer."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        some: list[torch.Tensor],
        scratch: dict[torch.dtype, torch.Tensor] | None,
    ) -> None:
        self.optimizer, self._some = optimizer, some
        self.writes = [count_writes(optimizer, parameter) for parameter in some]
        self._states = {p: dict(optimizer.state[p]) for p in some if p in optimizer.state}
        tensors = [*some, *(v for state in self._states.values() for v in state.values() if torch.is_tensor(v))]
        with torch.no_grad():
            if scratch is None:
                copies = [tensor.detach().to("cpu", copy=True) for tensor in tensors]
            else:
                copies = _places(tensors, scratch)
                copy_lists(copies, tensors)
        self._copies = list(zip(tensors, copies, strict=True))

    def put_back(self) -> None:
        with torch.no_grad():
            for tensor, copy in self._copies:
                tensor.copy_(copy)  # all of them: not every list-at-once kernel counts that it has written
        for parameter in self._some:
            if parameter in self._states:
                self.optimizer.state[parameter] = self._states[parameter]
            else:
                self.optimizer.state.pop(parameter, None)


def _places(tensors: list[torch.Tensor], scratch: dict[torch.dtype, torch.Tensor]) -> list[torch.Tensor]:
    """Room for these tensors, one behind the other. Small ones elsewhere, such as counts of steps, have their own."""
    device = tensors[0].device
    sizes: dict[torch.dtype, int] = {}
    for tensor in tensors:
        if tensor.device == device:
            sizes[tensor.dtype] = sizes.get(tensor.dtype, 0) + tensor.numel()
    for kind, size in sizes.items():
        if kind not in scratch or scratch[kind].numel() < size:
            scratch.pop(kind, None)
            scratch[kind] = torch.empty(size, dtype=kind, device=device)
    filled = dict.fromkeys(sizes, 0)
    places = []
    for tensor in tensors:
        if tensor.device != device:
            places.append(torch.empty_like(tensor))
            continue
        begin = filled[tensor.dtype]
        filled[tensor.dtype] = begin + tensor.numel()
        # in the tensor's own layout, so that the copy is one stretch of memory
        strides = tensor.stride() if is_dense(tensor) else torch.empty_like(tensor, device="meta").stride()
        places.append(scratch[tensor.dtype].as_strided(tensor.shape, strides, begin))
    return places


def protect_update(optimizer: torch.optim.Optimizer, device: torch.device, state_on: str) -> bool:
    """Whether it can be done: with an optimizer of torch.optim that has its state on the device."""
    if state_on != "device":
        return False
    try:
        ProtectedUpdate(optimizer, device)
    except CannotDo:
        return False
    return True


def refuse_closures(optimizer: torch.optim.Optimizer) -> None:
    """A guard calls ``step()``, with the gradients in place."""
    given = inspect.signature(type(optimizer).step).parameters.get("closure")
    if given is not None and given.default is inspect.Parameter.empty:
        raise CannotDo(
            f"{type(optimizer).__name__} calls the loss by itself, as often as it likes (step(closure)), so a step "
            "that runs out of memory cannot be begun again: train it without Guard, or take another optimizer"
        )


def versions_of(tensors: Iterable[torch.Tensor]) -> list[int]:
    """How often each was written to. An update that has written nothing yet can be done again."""
    return [version_of(tensor) for tensor in tensors]


def list_updated_tensors(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """Parameters, and the state there is of them."""
    state = [v for state in optimizer.state.values() for v in state.values() if torch.is_tensor(v)]
    return [p for group in optimizer.param_groups for p in group["params"]] + state


def _parts(group: Group, most: int) -> Iterator[list[torch.Tensor]]:
    """The group's parameters that have gradients, at most so many bytes at a time."""
    some: list[torch.Tensor] = []
    size = 0
    for parameter in [p for p in group["params"] if p.grad is not None]:
        if some and size + parameter.nbytes > most:
            yield some
            some, size = [], 0
        some.append(parameter)
        size += parameter.nbytes
    if some:
        yield some


def _writes_last(optimizer: torch.optim.Optimizer, group: Group) -> bool:
    """Whether nothing is allocated for a parameter once it or its state was written to, where state exists already:
    torch/optim/sgd.py in its plain, list-at-once and fused forms, adam.py in its fused one (PyTorch 2.4 to 2.14)."""
    if type(optimizer) in (torch.optim.Adam, torch.optim.AdamW):
        return bool(group["fused"]) and _has_state(optimizer, group)
    return (
        type(optimizer) is torch.optim.SGD
        and not group["nesterov"]
        and (not group["momentum"] or _has_state(optimizer, group))
    )


def _has_state(optimizer: torch.optim.Optimizer, group: Group) -> bool:
    return all(optimizer.state.get(p) for p in group["params"] if p.grad is not None)
