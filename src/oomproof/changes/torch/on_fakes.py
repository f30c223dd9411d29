"""A real model that runs on fake tensors for a while: its shapes and its graph, without memory for a forward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

import torch

from oomproof.frameworks.torch import own_buffers, own_parameters

Kept = Callable[[torch.nn.Module], dict[str, Any]]
"""own_parameters or own_buffers"""


class FakeMode(Protocol):
    """While it is entered, tensors have a shape and no memory: oomproof's Tracer, in which detectors run too."""

    def __enter__(self) -> Any: ...

    def __exit__(self, *raised: Any) -> None: ...

    def adopt(self, real: torch.Tensor) -> torch.Tensor: ...

    def compute(self, tensor: torch.Tensor) -> torch.Tensor: ...

    def know_weights(self, model: torch.nn.Module) -> None: ...


@contextmanager
def on_fakes(model: torch.nn.Module, fakes: Callable[[], FakeMode]) -> Iterator[dict[torch.Tensor, torch.Tensor]]:
    """While this is open the model runs on fake tensors; yields the real parameter of each fake one."""
    parameters, buffers = each(model, own_parameters, same), each(model, own_buffers, same)
    contents = each(model, own_buffers, torch.Tensor.cpu)
    with fakes() as mode:
        shapes = each(model, own_parameters, empty)
        try:
            put(model, own_parameters, shapes)
            put(model, own_buffers, {place: mode.adopt(content) for place, content in contents.items()})
            mode.know_weights(model)
            yield {shapes[place]: parameter for place, parameter in parameters.items()}
        finally:
            put(model, own_parameters, parameters)
            put(model, own_buffers, buffers)


def each(model: torch.nn.Module, kind: Kept, change: Callable[[Any], Any]) -> dict[tuple[torch.nn.Module, str], Any]:
    """Parameters or buffers by their place, each changed; one that is shared is changed once."""
    changed: dict[int, Any] = {}
    places = {}
    for module in model.modules():
        for name, tensor in kind(module).items():
            if tensor is not None:
                if id(tensor) not in changed:
                    changed[id(tensor)] = change(tensor)
                places[module, name] = changed[id(tensor)]
    return places


def put(model: torch.nn.Module, kind: Kept, tensors: Mapping[tuple[torch.nn.Module, str], Any]) -> None:
    for (module, name), tensor in tensors.items():
        kind(module)[name] = tensor


def same(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def empty(parameter: torch.Tensor, device: str = "cpu") -> torch.nn.Parameter:
    """Of the same form, without content (on ``meta``: without memory)."""
    form = torch.empty_strided(parameter.shape, parameter.stride(), dtype=parameter.dtype, device=device)
    return torch.nn.Parameter(form, parameter.requires_grad)
