"""What a step changes besides gradients, kept so that the step can begin again: random numbers and buffers."""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass
from typing import Any

import torch

from oomproof.frameworks.torch import NormBase, copy_lists, own_buffers, version_of


@dataclass
class _Buffer:
    owner: dict[str, torch.Tensor | None]
    """where the module keeps it"""
    name: str
    tensor: torch.Tensor
    copy: torch.Tensor
    version: int
    unnoticed: bool
    """normalisation writes running statistics without counting it (aten::native_batch_norm, PyTorch 2.4 to 2.14)"""

    @property
    def written(self) -> bool:
        return self.unnoticed or version_of(self.tensor) != self.version


class BeforeStep:
    """``note()`` before a step, ``restore()`` to begin it again.

    Running statistics are copied in every step; other buffers when they were written to since the last time, which
    PyTorch counts, so that constant tables are copied once.
    """

    def __init__(self, model: torch.nn.Module, device: torch.device) -> None:
        self.device = device
        self._buffers = [
            _Buffer(
                own_buffers(module),
                name,
                buffer,
                buffer.detach().clone(),
                version_of(buffer),
                isinstance(module, NormBase),
            )
            for module in model.modules()
            for name, buffer in own_buffers(module).items()
            if buffer is not None and not buffer.is_inference()
        ]
        self._random = random_numbers(device)

    def note(self) -> None:
        self._random = random_numbers(self.device)
        changed = []
        for buffer in self._buffers:
            now = buffer.owner.get(buffer.name)
            if now is not buffer.tensor and now is not None:  # the module has put another tensor in its place
                buffer.tensor, buffer.copy = now, now.detach().clone()
                buffer.version = version_of(now)
            elif buffer.written:
                changed.append(buffer)
        self._copy(changed, back=False)

    def restore(self) -> None:
        set_random_numbers(self._random, self.device)
        changed = []
        for buffer in self._buffers:
            if buffer.owner.get(buffer.name) is not buffer.tensor:
                buffer.owner[buffer.name] = buffer.tensor
            if buffer.written:
                changed.append(buffer)
        self._copy(changed, back=True)

    def _copy(self, buffers: list[_Buffer], back: bool) -> None:
        if not buffers:
            return
        tensors, copies = [each.tensor for each in buffers], [each.copy for each in buffers]
        with torch.no_grad():
            copy_lists(tensors, copies) if back else copy_lists(copies, tensors)
        for each in buffers:
            each.version = version_of(each.tensor)


def random_numbers(device: torch.device) -> dict[str, Any]:
    """Where every generator stands that a step may draw from."""
    states: dict[str, Any] = {"cpu": torch.get_rng_state(), "python": random.getstate()}
    if "numpy" in sys.modules:
        states["numpy"] = sys.modules["numpy"].random.get_state()
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    elif device.type in ("mps", "xpu"):
        states[device.type] = getattr(torch, device.type).get_rng_state()
    return states


def set_random_numbers(states: dict[str, Any], device: torch.device) -> None:
    torch.set_rng_state(states["cpu"])
    random.setstate(states["python"])
    if "numpy" in states:
        sys.modules["numpy"].random.set_state(states["numpy"])
    if "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)
    elif device.type in states and device.type != "cpu":
        getattr(torch, device.type).set_rng_state(states[device.type])
