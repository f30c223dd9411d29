"""What fake storages contain, as far as it may be asked for: each has a lazy Value."""

from __future__ import annotations

from typing import Any

import torch

from oomproof.frameworks.torch import FakeTensor, storage_key
from oomproof.trace.torch.ledger import Ledger
from oomproof.trace.torch.shapes.operations import OpFacts
from oomproof.trace.torch.values import Layout, Operation, Value, replace_by_views, tensors_in, value_of_tensor

LARGEST_VALUE = 1 << 30
"""A lazy value of more bytes is never computed: it counts as a network output."""
NETWORK_OP_BYTES = 4 << 20
"""From this size on a costly operation counts as the network's even if no weight takes part (attention)."""

_KEEPS_WEIGHT = frozenset({"_to_copy", "clone", "copy_", "t", "detach"})
_PROMOTES = frozenset({"add", "sub", "mul", "div"})
"""what autocast leaves to PyTorch's rule that the wider type wins"""


class Contents:
    """The Values of a trace. They end with their storages, which the ledger sees to."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger, self._values = ledger, ledger.values

    def value_of(self, tensor: torch.Tensor) -> Value:
        if not isinstance(tensor, FakeTensor):
            return value_of_tensor(tensor)
        key = storage_key(tensor.untyped_storage())
        value = self._values.get(key)
        if value is None:
            value = Value(tensor.untyped_storage().nbytes(), tensor.dtype, from_network=True)
            self._values[key] = value
        return value

    def know(self, tensor: torch.Tensor, real: torch.Tensor) -> None:
        """A fake tensor has the content of a real one."""
        self._values[storage_key(tensor.untyped_storage())] = value_of_tensor(real)

    def call_weight(self, tensor: torch.Tensor) -> None:
        """What costly operations make of it is a network output; whatever filled it is forgotten."""
        storage = tensor.untyped_storage()
        self._values[storage_key(storage)] = Value(storage.nbytes(), tensor.dtype, weight=True)

    def forget(self, written: list[torch.Tensor]) -> None:
        """Contents that are no longer what they were; an updated weight stays a weight."""
        for tensor in written:
            key = storage_key(tensor.untyped_storage())
            if key in self._values and not self._values[key].weight:
                del self._values[key]

    def remember(self, func: Any, facts: OpFacts, args: Any, kwargs: Any, *, fresh: Any, written: Any) -> None:
        """Gives every storage the operation made or wrote its Value."""
        if facts.name == "_amp_foreach_non_finite_check_and_unscale_":
            return  # gradients are finite: a skipped step would have no optimizer state
        values = [self.value_of(tensor) for tensor in tensors_in(args, kwargs)]
        weight = network = False
        for value in values:
            weight, network = weight or value.weight, network or value.from_network
        if network and facts.name in _PROMOTES and fresh:
            self._note_wide(tensors_in(args), values, next(iter(fresh.values())))
        made = [(storage_key(tensor.untyped_storage()), Layout(place, tensor)) for place, tensor in fresh.items()]
        size = sum([layout.bytes for _, layout in made]) + sum([self.value_of(tensor).bytes for tensor in written])
        keeps = weight and facts.name in _KEEPS_WEIGHT
        if size > LARGEST_VALUE or (facts.costly and (weight or size > NETWORK_OP_BYTES)):
            made += [(storage_key(tensor.untyped_storage()), Layout(0, tensor)) for tensor in written]
            for key, layout in made:
                self._values[key] = Value(layout.bytes, layout.dtype, weight=keeps, from_network=True)
            return
        old = {storage_key(tensor.untyped_storage()): self.value_of(tensor) for tensor in written}
        each = iter(values)
        args = replace_by_views(args, each)
        kwargs = dict(zip(kwargs, replace_by_views(kwargs.values(), each), strict=True))
        layouts = [layout for _, layout in made]
        operation = Operation(func, args, kwargs, seen=values, written=list(old.values()), fresh=layouts)
        for place, (key, value) in enumerate(old.items()):
            self._values[key] = Value(
                value.bytes, value.dtype, operation=operation, result=place, weight=value.weight, from_network=network
            )
        for place, (key, layout) in enumerate(made, start=len(old)):
            self._values[key] = Value(
                layout.bytes, layout.dtype, operation=operation, result=place, weight=keeps, from_network=network
            )

    def _note_wide(self, given: list[torch.Tensor], values: list[Value], out: torch.Tensor) -> None:
        """Activations that meet a row of numbers in fp32 (a frozen normalisation's, a layer's scale) are fp32 from then
        on, whatever autocast says."""
        wide = (
            not value.from_network and tensor.dim() and tensor.dtype is torch.float32 and tensor.numel() < out.numel()
            for tensor, value in zip(given, values, strict=False)
        )
        if out.dtype is torch.float32 and any(wide):
            self._ledger.stays_wide(out)
