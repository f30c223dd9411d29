"""What a step changes besides gradients, kept so that the step can begin again: random numbers and buffers. And what
no step may have changed before its update: parameters."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from oomproof.frameworks.torch import NormBase, copy_lists, own_buffers, version_of


@dataclass
class _Buffer:
    module: torch.nn.Module
    place: str
    """the module's path and the buffer's name in it"""
    name: str
    tensor: torch.Tensor
    copy: torch.Tensor
    version: int
    unnoticed: bool
    """normalisation writes running statistics without counting it (aten::native_batch_norm, PyTorch 2.4 to 2.14)"""

    @property
    def owner(self) -> dict[str, torch.Tensor | None]:
        """where the module keeps it"""
        return own_buffers(self.module)

    @property
    def written(self) -> bool:
        return self.unnoticed or version_of(self.tensor) != self.version

    @property
    def replaced(self) -> bool:
        return self.owner.get(self.name) is not self.tensor


class BeforeStep:
    """``note()`` before a step, ``restore()`` to begin it again.

    Running statistics are copied in every step; other buffers when they were written to since the last time, which
    PyTorch counts, so that constant tables are copied once.
    """

    def __init__(self, model: torch.nn.Module, device: torch.device) -> None:
        self.model, self.device = model, device
        self._modules = list(model.named_modules())
        self._buffers: list[_Buffer] = []
        self._known: set[tuple[int, str]] = set()
        self._add_buffers()
        self._generators = list(_own_generators(model))
        self._random = random_numbers(device)
        self._own_random: list[Any] = []
        renormed = {
            id(module.weight)
            for module in model.modules()
            if isinstance(module, (torch.nn.Embedding, torch.nn.EmbeddingBag)) and module.max_norm is not None
        }
        # To write an embedding's ``max_norm`` twice is to write it once.
        self._parameters = [p for p in model.parameters() if id(p) not in renormed and not p.is_inference()]
        self._versions: list[int] = []

    def note(self) -> None:
        self.note_random_numbers()
        self._versions = [version_of(parameter) for parameter in self._parameters]
        changed = []
        for buffer in self._buffers:
            now = buffer.owner.get(buffer.name)
            if now is not buffer.tensor and now is not None:  # the module has put another tensor in its place
                buffer.tensor, buffer.copy = now, now.detach().clone()
                buffer.version = version_of(now)
            elif buffer.written:
                changed.append(buffer)
        self._copy(changed, back=False)
        self._add_buffers()

    def restore(self) -> None:
        self.restore_random_numbers()
        for module, name in self._new_buffers():  # of a pass that failed: the next makes them anew
            del own_buffers(module)[name]
        changed = []
        for buffer in self._buffers:
            if buffer.replaced:
                buffer.owner[buffer.name] = buffer.tensor
            if buffer.written:
                changed.append(buffer)
        self._copy(changed, back=True)

    def note_random_numbers(self) -> None:
        self._random = random_numbers(self.device)
        self._own_random = [_state_of(each) for each in self._generators]

    def restore_random_numbers(self) -> None:
        set_random_numbers(self._random, self.device)
        for generator, state in zip(self._generators, self._own_random, strict=False):
            _set_state(generator, state)

    def written_buffers(self) -> Iterator[tuple[str, torch.nn.Module, str]]:
        """(place, module, name) of those that were written to or replaced since the last note."""
        for buffer in self._buffers:
            if buffer.replaced or buffer.written:
                yield buffer.place, buffer.module, buffer.name

    @property
    def parameters_written(self) -> bool:
        """Since the last note, as far as PyTorch counts it: an update within backward cannot be begun again."""
        return [version_of(parameter) for parameter in self._parameters] != self._versions

    def _new_buffers(self) -> list[tuple[torch.nn.Module, str]]:
        return [
            (module, name)
            for _, module in self._modules
            for name, buffer in own_buffers(module).items()
            if buffer is not None and not buffer.is_inference() and (id(module), name) not in self._known
        ]

    def _add_buffers(self) -> None:
        found = self._new_buffers()
        paths = {id(module): path for path, module in self._modules} if found else {}
        for module, name in found:
            buffer = own_buffers(module)[name]
            assert buffer is not None
            place = f"{paths[id(module)]}.{name}".removeprefix(".")
            copy, unnoticed = buffer.detach().clone(), isinstance(module, NormBase)
            self._buffers.append(_Buffer(module, place, name, buffer, copy, version_of(buffer), unnoticed))
            self._known.add((id(module), name))

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


def _own_generators(model: torch.nn.Module) -> Iterator[Any]:
    """Generators that modules hold as attributes: PyTorch's, NumPy's and Python's."""
    kinds: tuple[type, ...] = (torch.Generator, random.Random)
    if "numpy" in sys.modules:
        kinds += (sys.modules["numpy"].random.Generator,)
    for module in model.modules():
        yield from (each for each in vars(module).values() if isinstance(each, kinds))


def _state_of(generator: Any) -> Any:
    if isinstance(generator, torch.Generator):
        return generator.get_state()
    return generator.getstate() if isinstance(generator, random.Random) else generator.bit_generator.state


def _set_state(generator: Any, state: Any) -> None:
    if isinstance(generator, torch.Generator):
        generator.set_state(state)
    elif isinstance(generator, random.Random):
        generator.setstate(state)
    else:
        generator.bit_generator.state = state
