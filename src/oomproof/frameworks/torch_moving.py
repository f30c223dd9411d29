"""``model.to(...)`` for fake tensors: PyTorch's own Module._apply swaps tensors, which fake ones do not always allow.

Made for PyTorch 2.4 to 2.14; torch.py, which is imported first, tells a version that lacks a name.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

import torch


def applying_to_fakes() -> AbstractContextManager[Any]:
    """``model.to(...)`` and the like for fake parameters: Module._apply swaps tensors, which weakly referenced fake
    ones refuse."""
    return patch.object(torch.nn.Module, "_apply", _apply)


def _apply(self: torch.nn.Module, fn: Callable[[Any], Any], recurse: bool = True, memo: Any = None) -> torch.nn.Module:
    memo = {} if memo is None else memo
    for child in self.children() if recurse else ():
        child._apply(fn, memo=memo) if child._apply.__func__ is _apply else child._apply(fn)
    for name, parameter in self._parameters.items():
        if parameter is None:
            continue
        if id(parameter) not in memo:
            with torch.no_grad():
                changed = fn(parameter)
            same = changed is parameter
            memo[id(parameter)] = (
                parameter,
                parameter if same else torch.nn.Parameter(changed, parameter.requires_grad),
            )
        self._parameters[name] = memo[id(parameter)][1]
    for name, buffer in self._buffers.items():
        if buffer is not None:
            self._buffers[name] = fn(buffer)
    return self


def moving_by_swap() -> AbstractContextManager[Any]:
    """``model.to(...)`` that turns real parameters into fake ones and leaves every Parameter the object that it was, as
    PyTorch does: optimizers and lists made before still hold it."""
    return patch.object(torch.nn.Module, "_apply", _apply_by_swap)


def _apply_by_swap(self: torch.nn.Module, fn: Callable[[Any], Any], recurse: bool = True) -> torch.nn.Module:
    for child in self.children() if recurse else ():
        child._apply(fn)
    for name, parameter in self._parameters.items():
        if parameter is not None:
            self._parameters[name] = _change_by_swap(parameter, fn)
    for name, buffer in self._buffers.items():
        if buffer is not None:
            self._buffers[name] = fn(buffer)
    return self


def _change_by_swap(parameter: Any, fn: Callable[[Any], Any]) -> Any:
    with torch.no_grad():
        changed = fn(parameter)
        gradient = None if parameter.grad is None else fn(parameter.grad)
    if changed is parameter:
        return parameter
    parameter.grad = None
    new = torch.nn.Parameter(changed, parameter.requires_grad)
    del changed
    try:
        torch.utils.swap_tensors(parameter, new)
        new = parameter
    except RuntimeError:  # something else holds it too, an autograd node for instance
        pass
    new.grad = gradient
    return new
