"""An optimizer's update that is whole or not at all, though memory may run out in its middle.

Parameters are updated a few at a time. Those of one part are copied first with their state, so a part that fails is put
back and done again; the parts before it stay done. While the optimizer makes its state, which is when memory runs out
in most updates, the copies of all parts are kept, and the whole update can be taken back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from oomproof.changes.torch.some_parameters import Group, only, plain_step, replace_step
from oomproof.errors import CannotDo
from oomproof.frameworks.torch import version_of
from oomproof.run.guard.failures import Failure, attempt, free_memory

PART = 64 << 20
"""bytes of parameters that are updated together; a list-at-once kernel gains nothing from more"""


class UpdateFailed(Exception):
    """Memory ran out in the update. ``intact``: parameters and state are as before it."""

    def __init__(self, failure: Failure, intact: bool) -> None:
        super().__init__(failure.text)
        self.failure, self.intact = failure, intact


class ProtectedUpdate:
    def __init__(self, optimizer: torch.optim.Optimizer, device: torch.device) -> None:
        self.optimizer, self.device = optimizer, device
        self._plain = plain_step(optimizer, "Guard", "the optimizer as it is")
        self._stepped = False
        replace_step(optimizer, self._step)

    def _step(self, optimizer: torch.optim.Optimizer, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        done: list[_Part] | None = [] if self._makes_state() else None
        for group, some in _parts(optimizer.param_groups):
            self._update(group, some, done)
        self._stepped = True
        return loss

    def _makes_state(self) -> bool:
        """Whether this update is the first, and a parameter has no state yet."""
        state = self.optimizer.state
        return not self._stepped and any(
            p.grad is not None and not state.get(p) for group in self.optimizer.param_groups for p in group["params"]
        )

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

    def _once(self, group: Group, some: list[torch.Tensor], done: list[_Part] | None) -> Failure | None:
        """Updates these parameters; after a failure they are as they were."""
        part, failure = attempt("update", lambda: _Part(self.optimizer, some, on_host=done is not None))
        if failure is not None:
            return failure

        def run() -> None:
            with torch.no_grad(), only(self.optimizer, group, some):
                self._plain(self.optimizer)

        _, failure = attempt("update", run)
        if failure is not None:
            part.put_back()
        elif done is not None:
            done.append(part)
        return failure


class _Part:
    """Some parameters with their state, as they are now."""

    def __init__(self, optimizer: torch.optim.Optimizer, some: list[torch.Tensor], on_host: bool) -> None:
        self.optimizer = optimizer
        self._states = {p: dict(optimizer.state[p]) for p in some if p in optimizer.state}
        tensors = [*some, *(v for state in self._states.values() for v in state.values() if torch.is_tensor(v))]
        where = "cpu" if on_host else None
        self._copies = [(tensor, tensor.detach().to(device=where, copy=True), version_of(tensor)) for tensor in tensors]
        self._some = some

    def put_back(self) -> None:
        with torch.no_grad():
            for tensor, copy, version in self._copies:
                if version_of(tensor) != version:
                    tensor.copy_(copy)
        for parameter in self._some:
            if parameter in self._states:
                self.optimizer.state[parameter] = self._states[parameter]
            else:
                self.optimizer.state.pop(parameter, None)


def protect_update(optimizer: torch.optim.Optimizer, device: torch.device, state_on: str) -> bool:
    """Whether it can be done: with an optimizer of torch.optim that has its state on the device."""
    if state_on != "device":
        return False
    try:
        ProtectedUpdate(optimizer, device)
    except CannotDo:
        return False
    return True


def versions_of(tensors: Iterable[torch.Tensor]) -> list[int]:
    """How often each was written to. An update that has written nothing yet can be done again."""
    return [version_of(tensor) for tensor in tensors]


def updated_tensors(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """Parameters, and the state there is of them."""
    state = [v for state in optimizer.state.values() for v in state.values() if torch.is_tensor(v)]
    return [p for group in optimizer.param_groups for p in group["params"]] + state


def _parts(groups: list[Group]) -> Iterator[tuple[Group, list[torch.Tensor]]]:
    for group in groups:
        some: list[torch.Tensor] = []
        size = 0
        for parameter in [p for p in group["params"] if p.grad is not None]:
            if some and size + parameter.nbytes > PART:
                yield group, some
                some, size = [], 0
            some.append(parameter)
            size += parameter.nbytes
        if some:
            yield group, some
