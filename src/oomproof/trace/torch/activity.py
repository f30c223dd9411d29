"""Notes down what the traced step does: the work of every operation, and the forward call of every module."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from oomproof.frameworks.torch import current_backward, in_transform, keeps_result, storage_key
from oomproof.memory.activity import (
    CONVOLUTION,
    DEPTHWISE,
    GROUPED,
    HALF,
    HALF_CONVOLUTION,
    HALF_DEPTHWISE,
    PLAIN,
    ModuleCall,
    Work,
)
from oomproof.memory.scratch.recurrent import BACKWARD, FORWARD
from oomproof.memory.timeline import PHASES

_HALF = (torch.float16, torch.bfloat16)
_PRODUCTS = {"mm": (0, 1), "addmm": (1, 2), "bmm": (0, 1), "baddbmm": (1, 2), "addmv": (1, 2), "mv": (0, 1)}
"""matrix products, and which arguments are multiplied"""


_VIEWS = tuple(f"{name}Backward" for name in ("View", "UnsafeView", "Transpose", "T", "Permute", "Alias", "Slice"))
_RESULTS: dict[type, bool] = {}
"""kinds of autograd nodes that were looked at, and whether they keep their operation's result"""


@dataclass
class _Open:
    """A module that runs now."""

    path: str
    enter: int
    inputs: tuple[int, ...]
    images: set[int]
    counted: bool
    repeatable: bool = True
    separable: bool = True


@dataclass
class Activity:
    """What was noted since the step began."""

    work: list[tuple[int, str, str, int, int, int]] = field(default_factory=list)
    calls: list[ModuleCall] = field(default_factory=list)
    _open: list[_Open] = field(default_factory=list)

    def enter(
        self, path: str, tick: int, inputs: Iterable[torch.Tensor], blocks: Mapping[int, int], named: bool
    ) -> None:
        """A module begins; it is ``named`` if the model has it under this path, so that a setting could name it."""
        # Only rows and sizes are kept: holding the tensors would make them live longer than they do.
        given = list(inputs)
        again = current_backward() != -1  # a checkpointed module, computed again in backward
        self._open.append(_Open(path, tick, _rows(given, blocks), _images(given), not again, named))
        if any(map(in_transform, given)):  # inside torch.vmap or torch.func.grad, which see one image of many
            self._open[-1].repeatable = self._open[-1].separable = False

    def leave(self, tick: int, outputs: Iterable[torch.Tensor], blocks: Mapping[int, int]) -> None:
        if not self._open:
            return
        was, made = self._open.pop(), list(outputs)
        if was.counted:
            images = was.images | _images(made)
            common = images.pop() if len(images) == 1 else 0
            rows = _rows(made, blocks)
            saves = any(_saves_result(tensor.grad_fn) for tensor in made)
            self.calls.append(
                ModuleCall(was.path, was.enter, tick, was.inputs, rows, common, was.repeatable, was.separable, saves)
            )

    def spoil(self, before: int | None = None) -> None:
        """No module that runs now (or that runs since a tick later than ``before``) may be computed again."""
        for module in self._open:
            if before is None or module.enter > before:
                module.repeatable = False

    def mix(self) -> None:
        """No module that runs now treats its images one by one."""
        for module in self._open:
            module.separable = False

    def summarise(self, owners: Sequence[str]) -> tuple[Work, tuple[ModuleCall, ...]]:
        number = {owner: place for place, owner in enumerate(owners)}
        rows = [
            (tick, number.get(owner, 0), PHASES.index(phase), flops, nbytes, form)
            for tick, owner, phase, flops, nbytes, form in self.work
        ]
        columns = np.array(rows, dtype=np.int64).reshape(-1, 6).T
        return Work(*columns), tuple(self.calls)


def work_of(
    name: str, args: Any, tensors: Iterable[torch.Tensor], outs: Sequence[torch.Tensor]
) -> tuple[int, int, int]:
    """(flops, bytes, form) of an operation, from its arguments and results."""
    read = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    written = sum(tensor.numel() * tensor.element_size() for tensor in outs)
    flops = _flops(name, args, outs)
    if not flops:
        return 0, read + written, PLAIN
    return flops, read + written, _form(name, args, outs[0].dtype)


def _form(name: str, args: Any, dtype: torch.dtype) -> int:
    half = dtype in _HALF
    if "convolution" not in name:
        return HALF if half else PLAIN
    x, groups = (args[0], args[8]) if name == "convolution" else (args[1], args[9])
    if groups == x.shape[1] > 1:
        return HALF_DEPTHWISE if half else DEPTHWISE
    if groups > 1:
        return GROUPED
    return HALF_CONVOLUTION if half else CONVOLUTION


def _flops(name: str, args: Any, outs: Sequence[torch.Tensor]) -> int:
    if name == "convolution":
        return _convolution(args[1], args[0] if args[6] else outs[0])
    if name == "convolution_backward":
        wanted = sum(bool(each) for each in args[10][:2])  # the gradients of input and weight
        return wanted * _convolution(args[2], args[1] if args[7] else args[0])
    if name in _PRODUCTS:
        left, right = (args[place] for place in _PRODUCTS[name])
        return int(2 * left.numel() * (right.shape[-1] if right.dim() > 1 else 1))
    if name in (FORWARD, BACKWARD):
        x, weights = args[0], args[1]
        passes = 1 if name == FORWARD else 2  # the gradients of the input and of the weights
        products = sum(weight.numel() for weight in weights if weight.dim() > 1)
        return int(passes * 2 * products * (x.numel() // max(1, x.shape[-1])))
    if "attention" in name:
        backward = "backward" in name
        q, k = (args[1], args[2]) if backward else (args[0], args[1])
        products = 5 if backward else 2  # flash attention forms the scores again
        return int(products * 2 * q.numel() * k.shape[-2])
    return 0


def _convolution(weight: torch.Tensor, out: torch.Tensor) -> int:
    """Every number of the larger-channelled side is a sum over one filter."""
    return int(2 * (out.numel() // max(1, out.shape[1])) * math.prod(weight.shape))


def _saves_result(node: Any) -> bool:
    """Whether an autograd node (or the one whose result it only looks at) keeps what its operation returned."""
    while node is not None and type(node).__name__.rstrip("0123456789") in _VIEWS:
        node = node.next_functions[0][0]
    return node is not None and _names_result(type(node))


def _names_result(kind: type) -> bool:
    if kind not in _RESULTS:
        _RESULTS[kind] = keeps_result(kind)
    return _RESULTS[kind]


def _images(tensors: Iterable[torch.Tensor]) -> set[int]:
    return {tensor.shape[0] if tensor.dim() else 0 for tensor in tensors}


def _rows(tensors: Iterable[torch.Tensor], blocks: Mapping[int, int]) -> tuple[int, ...]:
    found = (blocks.get(storage_key(each.untyped_storage())) for each in tensors if not in_transform(each))
    return tuple(dict.fromkeys(row for row in found if row is not None))
