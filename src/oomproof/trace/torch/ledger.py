"""The ledger: every storage of the traced step as a block of the Timeline, with owner, kind and phase.

A storage becomes a block when it is first seen and ends when Python's weak reference to it says that it died,
so lifetimes are exactly those of the real program.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from oomproof.changes.torch.trees import tensors_of
from oomproof.frameworks.torch import (
    FakeTensor,
    NormBase,
    current_backward,
    current_node,
    next_node_number,
    node_number,
    own_buffers,
    own_parameters,
    storage_key,
)
from oomproof.memory.about import About
from oomproof.memory.timeline import KINDS, Builder, Timeline
from oomproof.trace.torch.activity import Activity
from oomproof.trace.torch.values import Value

OUTSIDE = "(step)"
"""Owner of what no module makes: losses and anything else in the training loop."""


class Ledger:
    def __init__(self) -> None:
        self.builder = Builder()
        self.modules: list[str] = []
        """the modules running now, outermost first"""
        self.values: dict[int, Value] = {}
        """content by storage key; an entry goes when its storage does"""
        self.outlived: list[Value] = []
        """large contents whose storage died while operations may still wait for them"""
        self.widened: Counter[str] = Counter()
        """bytes of results that autocast would leave in fp32, by owner"""
        self.host: dict[int, int] = {}
        """bytes of host RAM for blocks that a real run has there"""
        self.off_device: set[int] = set()
        """storages that the job has brought to host RAM"""
        self.made_on_cpu: set[int] = set()
        """storages that were made without naming a GPU, since all that was there was put on it; their memory counts, as
        jobs seldom say where they make small tensors, but whoever asks is told"""
        self._live: dict[int, int] = {}
        self._ends: dict[int, weakref.ref[torch.UntypedStorage]] = {}
        """what tells of the death of a block's storage"""
        self._names: weakref.WeakKeyDictionary[torch.nn.Module, str] = weakref.WeakKeyDictionary()
        self._node_owner: dict[int, str] = {}
        self._last_node = 0
        self._making: list[tuple[int, bool]] = [(0, False)]
        self._fixed: set[int] = set()
        self._statistics: set[int] = set()
        """running statistics of normalisation: recomputing knows how to leave them alone"""
        self.validating = False
        """a model is run to be measured, not trained"""
        self.attentive = False
        """values are remembered between steps too: scripts look at what they measure"""
        self.backwards = 0
        """backward passes that were seen in steps"""
        self._in_step = self._in_optimizer = self._after_backward = False
        self._activity = Activity()

    # -- where we are ------------------------------------------------------------------------------------------

    def name_modules(self, model: torch.nn.Module, whole: str | None = None, *, prefix: str = "") -> None:
        for path, module in model.named_modules():
            self._names[module] = whole or f"{prefix}{path}".rstrip(".") or type(module).__name__

    def module_name(self, module: torch.nn.Module) -> str:
        """A module's path; one that is made on the way is named by its class under the module that runs it."""
        name = self._names.get(module)
        if name is None:
            name = ".".join([*self.modules[-1:], type(module).__name__])
        return name

    def owner(self) -> str:
        """The module that runs; in backward the one whose forward made the running node."""
        if self.modules:
            return self.modules[-1]
        node = current_node()
        return OUTSIDE if node is None else self._node_owner.get(node_number(node), OUTSIDE)

    def note_nodes(self) -> None:
        """Remembers who made the autograd nodes since the last call."""
        now = next_node_number()
        if now > self._last_node:
            owner = self.modules[-1] if self.modules else OUTSIDE
            for number in range(self._last_node, now):
                self._node_owner[number] = owner
            self._last_node = now

    def start_step(self) -> None:
        self._in_step, self._after_backward = True, False
        self.put_on_gpu()
        self._activity = Activity()
        self._last_node = next_node_number()
        self.builder.enter("forward")

    def start_validation(self) -> None:
        self._in_step = self.validating = True
        self._activity = Activity()
        self._last_node = next_node_number()
        self._enter("validation", torch.is_grad_enabled())

    def optimizer_runs(self, running: bool) -> None:
        self._in_optimizer = running

    @property
    def priming(self) -> bool:
        """An optimizer makes its state, from gradients that have no content: of what it makes, only single numbers
        (a count of steps) are worth remembering."""
        return self._in_optimizer and not self._in_step

    def advance(self) -> bool:
        """Moves to the phase that the running code is in; true where values are worth remembering."""
        if not self._in_step:
            return True
        grad = torch.is_grad_enabled()
        if self.validating:
            self._enter("validation", grad)
            return True
        if self._in_optimizer:
            self._enter("optimizer", False)
        elif current_backward() != -1:
            self.backwards += not self._after_backward
            self._after_backward = True
            # Backward records nothing by itself: gradients on mean that a checkpointed part is computed again.
            self._enter("backward", grad)
        elif self._after_backward and not grad and not self.modules:
            self._enter("optimizer", False)
            return self.attentive
        else:
            self._after_backward = False
            self._enter("forward", True)
        return self._making[-1][1]

    def _enter(self, phase: str, making: bool) -> None:
        if phase != self.builder.phase or making != self._making[-1][1]:
            self._making.append((self.builder.ticks, making))
            self.builder.enter(phase)

    # -- blocks ------------------------------------------------------------------------------------------------

    def track(self, tensor: torch.Tensor, op: str, owner: str | None = None) -> int:
        """The block of a tensor's storage, made now if it is new (for ``owner``, by default who runs now)."""
        storage = tensor.untyped_storage()
        key: int = storage_key(storage)
        block = self._live.get(key)
        if block is None:
            block = self.builder.allocate(
                storage.nbytes(), kind="temporary", owner=owner or self.owner(), op=op, shape=tensor.shape
            )
            self._live[key] = block
            self._ends[block] = weakref.ref(storage, partial(self._note_death, key, block))
        return block

    def _note_death(self, key: int, block: int, end: weakref.ref[torch.UntypedStorage]) -> None:
        del self._ends[block]
        if self._live.get(key) == block:
            del self._live[key]
            self.off_device.discard(key)
            self.made_on_cpu.discard(key)
            value = self.values.pop(key, None)
            if value is not None and value.users and value.storage is not None:
                self.outlived.append(value)
        self.builder.free(block)

    def mark(self, tensor: torch.Tensor, kind: str, owner: str | None = None) -> None:
        """Says what a tensor is; blocks that nobody marks are told by their lifetime."""
        block = self.track(tensor, kind)
        self.builder.kinds[block] = KINDS.index(kind)
        self._fixed.add(block)
        if owner is not None:
            self.builder.set_owner(block, owner)

    def mark_model(self, model: torch.nn.Module, owner: str | None = None, *, prefix: str = "") -> None:
        """Parameters and buffers, each under its module's path (or all under ``owner``)."""
        whole = owner
        for path, module in model.named_modules():
            owner = whole or f"{prefix}{path}".rstrip(".") or type(module).__name__
            for parameter in own_parameters(module).values():
                if isinstance(parameter, FakeTensor):
                    self.mark(parameter, "parameter", owner)
            for buffer in own_buffers(module).values():
                if isinstance(buffer, FakeTensor):
                    self.mark(buffer, "buffer", owner)
                    if isinstance(module, NormBase):
                        self._statistics.add(self.track(buffer, "buffer"))

    def mark_gradients(self, model: torch.nn.Module) -> None:
        for path, module in model.named_modules():
            for parameter in own_parameters(module).values():
                if parameter is not None and parameter.grad is not None:
                    self.mark(parameter.grad, "gradient", path or type(module).__name__)

    def mark_state(self, optimizer: torch.optim.Optimizer, owners: Mapping[int, str]) -> None:
        for parameter, state in optimizer.state.items():
            for tensor in tensors_of(state):
                if isinstance(tensor, FakeTensor):  # counts of steps may be on the CPU
                    self.mark(tensor, "optimizer", owners.get(id(parameter), OUTSIDE))

    def live(self) -> int:
        """Bytes of all blocks that are alive now."""
        return sum(map(self.builder.size, self._live.values()))

    def erase(self, blocks: Iterable[int]) -> None:
        """Blocks that a real run would not have had."""
        for block in blocks:
            self.builder.resize(block, 0)

    def hold(self, tensor: torch.Tensor, nbytes: int) -> None:
        """A tensor whose memory is larger than its shape says."""
        self.builder.resize(self.track(tensor, "input"), nbytes)

    def on_host(self, tensor: torch.Tensor) -> None:
        """A tensor that a real run has in host RAM: it takes nothing of the device."""
        block = self.track(tensor, "host")
        self.erase([block])
        self.host[block] = _round_pinned(tensor.untyped_storage().nbytes())

    def take_off_device(self, tensor: torch.Tensor) -> None:
        """What ``tensor.cpu()`` makes, and what is made of that."""
        self.erase([self.track(tensor, "host")])
        self.off_device.add(storage_key(tensor.untyped_storage()))

    def put_on_gpu(self, tensor: torch.Tensor | None = None) -> None:
        """A tensor, or all that there are: the model and the batch are put there for the user."""
        if tensor is None:
            self.made_on_cpu.clear()
        else:
            self.made_on_cpu.discard(storage_key(tensor.untyped_storage()))

    def is_on_cpu(self, tensor: torch.Tensor) -> bool:
        key = storage_key(tensor.untyped_storage())
        return key in self.made_on_cpu or key in self.off_device

    def is_off_device(self, tensor: torch.Tensor) -> bool:
        return bool(self.off_device) and storage_key(tensor.untyped_storage()) in self.off_device

    def call(self, spec: Mapping[str, Any]) -> None:
        self.builder.call(owner=self.owner(), spec=spec)

    # -- what is done ------------------------------------------------------------------------------------------

    def enter_module(self, module: torch.nn.Module, inputs: Any) -> None:
        name = self.module_name(module)
        self.modules.append(name)
        self._activity.enter(name, self.builder.ticks, tensors_of(inputs), self._live, module in self._names)

    def leave_module(self, inputs: Any, output: Any) -> None:
        if self.modules:
            self.modules.pop()
            self._activity.leave(self.builder.ticks, tensors_of(output), self._live)

    def ran(
        self, op: str, work: tuple[int, int, int], made: Iterable[torch.Tensor], written: Iterable[torch.Tensor]
    ) -> None:
        """An operation ran that launches a kernel; ``work`` are its flops, bytes and form."""
        owner = self.owner()
        for tensor in made:
            self.track(tensor, op, owner)
        if self._in_step:
            self._activity.work.append((self.builder.ticks, owner, self.builder.phase, *work))
        self._note_write(written)

    def _note_write(self, tensors: Iterable[torch.Tensor]) -> None:
        """Running modules that were given a tensor and write into it cannot be computed again from it."""
        for tensor in tensors:
            block = self._live.get(storage_key(tensor.untyped_storage()))
            if block is None or block in self._statistics:
                continue
            # A buffer that is written to, a counter for instance, would be written to twice.
            self._activity.spoil(None if block in self._fixed else self.builder.lifetime(block)[0])

    def stays_wide(self, result: torch.Tensor) -> None:
        """A result that autocast would leave in fp32."""
        if self._in_step:
            self.widened[self.owner()] += result.untyped_storage().nbytes()

    def note_question(self) -> None:
        """A value was asked for: what depends on it may come out otherwise a second time."""
        self._activity.spoil()

    def note_mixing(self) -> None:
        """Images had to do with each other, or with a random draw: a part of the batch would come out otherwise."""
        self._activity.mix()

    # -- the end -----------------------------------------------------------------------------------------------

    def build(self, about: About | None = None) -> Timeline:
        """Tells the kind of every unmarked block by its lifetime, then makes the Timeline."""
        builder = self.builder
        ends = [tick for tick, _ in self._making[1:]] + [builder.ticks]
        segment = 0
        activation, batch = KINDS.index("activation"), KINDS.index("input")
        for block in range(len(builder)):
            if block in self._fixed:
                continue
            born, died = builder.lifetime(block)
            while segment < len(ends) - 1 and born >= ends[segment]:
                segment += 1
            outlives = died < 0 or died >= ends[segment]
            if outlives and segment == 0:
                builder.kinds[block] = batch
            elif outlives and self._making[segment][1]:
                builder.kinds[block] = activation
        timeline = builder.build(about)
        work, modules = self._activity.summarise(timeline.owners)
        return replace(timeline, work=work, modules=modules)


def _round_pinned(nbytes: int) -> int:
    """What PyTorch's allocator of pinned memory takes for a block: the next power of two."""
    return 1 << max(0, nbytes - 1).bit_length()
