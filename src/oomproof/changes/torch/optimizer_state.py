"""Optimizer state that takes less of the device: in host RAM, or in 8 bits a number (the ``optimizer_state`` setting).

The update then goes through the parameters a few at a time: their state is brought in, they are updated, and it is put
away again. The optimizer stays what it is, with its hooks, schedulers, ``state_dict`` and ``load_state_dict``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from oomproof.changes.torch.eight_bits import dequantise_codes, quantise_values
from oomproof.changes.torch.some_parameters import only, plain_step, replace_step
from oomproof.errors import InputError

PART = 8 << 20
"""Bytes of parameters that are updated together: Adam's state of them is twice that."""
SMALLEST_IN_8_BITS = 4096
"""Elements: biases and norms are few, and sensitive."""
_SIGNED = frozenset({"exp_avg", "momentum_buffer"})
_UNSIGNED = frozenset({"exp_avg_sq", "max_exp_avg_sq", "square_avg", "variance", "exp_inf"})
_LARGEST = ".largest"

State = dict[str, Any]


def keep_state(optimizer: torch.optim.Optimizer, where: str) -> None:
    """Applies the setting (``device``, ``host`` or ``8bit``) to an optimizer, with the state it may have already."""
    if where == "device":
        return
    if where not in _KEEPERS:
        raise InputError(f"optimizer_state must be device, {' or '.join(_KEEPERS)}; got '{where}'")
    bring, put = _KEEPERS[where]
    plain = plain_step(optimizer, f"optimizer_state={where}", "optimizer_state=device")

    def step(self: torch.optim.Optimizer, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group, some in _parts(self.param_groups):
            before = {p: dict(self.state[p]) for p in some if p in self.state}
            with only(self, group, some):
                for parameter in before:
                    bring(parameter, self.state[parameter])
                plain(self)
                for parameter in some:
                    if parameter in self.state:
                        put(parameter, self.state[parameter], before.get(parameter, {}))
        return loss

    def put_all(self: torch.optim.Optimizer) -> None:
        for parameter, state in self.state.items():
            put(parameter, state, {})

    def as_usual(self: torch.optim.Optimizer, saved: dict[str, Any]) -> dict[str, Any]:
        return {**saved, "state": {key: _unpack_state(state) for key, state in saved["state"].items()}}

    put_all(optimizer)
    replace_step(optimizer, step)
    optimizer.register_load_state_dict_post_hook(put_all)
    if where == "8bit":
        optimizer.register_state_dict_post_hook(as_usual)


def _parts(groups: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], list[torch.Tensor]]]:
    """Parameters that have gradients, a few at a time, with the group they belong to."""
    for group in groups:
        some: list[torch.Tensor] = []
        for parameter in list(group["params"]):
            if parameter.grad is None:
                continue
            if some and sum(p.nbytes for p in some) + parameter.nbytes > PART:
                yield group, some
                some = []
            some.append(parameter)
        if some:
            yield group, some


# -- host ----------------------------------------------------------------------------------------------------------


def _bring_from_host(parameter: torch.Tensor, state: State) -> None:
    for name, tensor in _large(state):
        state[name] = to_device(tensor, parameter.device)


def _put_on_host(parameter: torch.Tensor, state: State, before: State) -> None:
    for name, tensor in _large(state):
        state[name] = to_host(tensor, before.get(name))


def _large(state: State) -> list[tuple[str, torch.Tensor]]:
    """What weighs: not the count of steps, which PyTorch keeps where it wants it."""
    return [(name, value) for name, value in state.items() if isinstance(value, torch.Tensor) and value.dim()]


def to_host(tensor: torch.Tensor, place: torch.Tensor | None = None) -> torch.Tensor:
    """A copy in host RAM, into ``place`` where it was before; pinned, so that a GPU can read it by itself."""
    if place is None:
        place = torch.empty_like(tensor, device="cpu", pin_memory=torch.cuda.is_available())
    return place.copy_(tensor)


def to_device(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    return tensor.to(device, non_blocking=True, copy=True)


# -- 8 bits --------------------------------------------------------------------------------------------------------


def _bring_from_8_bits(parameter: torch.Tensor, state: State) -> None:
    state.update(_unpack_state(state))
    for name in [name for name in state if name.endswith(_LARGEST)]:
        del state[name]


def _put_in_8_bits(parameter: torch.Tensor, state: State, before: State) -> None:
    for name, value in list(state.items()):
        heavy = isinstance(value, torch.Tensor) and value.dtype is torch.float32 and value.numel() >= SMALLEST_IN_8_BITS
        # Centred RMSprop takes the root of a difference of averages, which rounding could make negative.
        exact = name == "square_avg" and "grad_avg" in state
        if heavy and name in _SIGNED | _UNSIGNED and not exact:
            place = (before[name], before[name + _LARGEST]) if name + _LARGEST in before else None
            state[name], state[name + _LARGEST] = quantise_values(value, name in _SIGNED, place)


def _unpack_state(state: State) -> State:
    """The state as the optimizer knows it."""
    return {
        name: dequantise_codes(value, state[name + _LARGEST], name in _SIGNED) if name + _LARGEST in state else value
        for name, value in state.items()
        if not name.endswith(_LARGEST)
    }


_KEEPERS = {"host": (_bring_from_host, _put_on_host), "8bit": (_bring_from_8_bits, _put_in_8_bits)}
