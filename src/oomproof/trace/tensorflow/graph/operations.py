"""The operations of a TensorFlow graph, each looked at once: asking TensorFlow again for every way in which sides that
are not known are filled in takes longer than all the rest of reading."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from oomproof.trace.tensorflow.buffers.lists import Shape

NO_MEMORY = frozenset({"resource", "variant", "string"})
SMALL_CONSTANT = 64
"""elements up to which a constant's value is kept: axes, permutations, sizes"""
SHAPES_ARE = 64
"""elements up to which integers are taken for a shape or a part of one, on which other shapes depend"""
_KEPT = (
    *("strides", "dilations", "data_format", "padding", "T", "var_name", "axis", "keep_dims", "equation"),
    "parallel_iterations",
)


@dataclass(frozen=True, slots=True)
class Result:
    """A tensor that an operation makes."""

    name: str
    dtype: str
    item: int
    """bytes of an element"""
    shape: Shape | None
    """None where a side is not known"""
    may_be_shape: bool
    tensor: Any

    @property
    def has_memory(self) -> bool:
        return self.dtype not in NO_MEMORY


@dataclass(frozen=True, slots=True)
class GraphOperation:
    name: str
    type: str
    inputs: tuple[str, ...]
    """names of tensors"""
    controls: tuple[str, ...]
    """names of operations"""
    results: tuple[Result, ...]
    attrs: dict[str, Any]
    original: Any
    """TensorFlow's own"""


def list_operations(graph: Any, wanted: Sequence[Any]) -> list[GraphOperation]:
    """What ``wanted`` depend on, each after those it depends on."""
    order: list[Any] = []
    seen: set[str] = set()
    stack = [(operation, False) for operation in reversed(wanted)]
    while stack:
        operation, entered = stack.pop()
        name = operation.name
        if entered:
            order.append(operation)
        elif name not in seen:
            seen.add(name)
            stack.append((operation, True))
            stack.extend((tensor.op, False) for tensor in operation.inputs)
            stack.extend((before, False) for before in operation.control_inputs)
    # As the graph lists them, where that is an order: it decides which of two ready nodes is seen first.
    position = {operation.name: place for place, operation in enumerate(graph.get_operations())}
    return [look_at(operation) for operation in sorted(order, key=lambda operation: position[operation.name])]


def look_at(operation: Any) -> GraphOperation:
    return GraphOperation(
        operation.name,
        operation.type,
        tuple(tensor.name for tensor in operation.inputs),
        tuple(before.name for before in operation.control_inputs),
        tuple(_look_at_tensor(tensor) for tensor in operation.outputs),
        _attrs(operation),
        operation,
    )


def may_be_shape(dtype: str, shape: Shape | None) -> bool:
    return dtype in ("int32", "int64") and (shape is None or math.prod(shape) <= SHAPES_ARE)


def shape_of(tensor: Any) -> Shape | None:
    """None where a side is not known."""
    shape = tensor.shape
    return tuple(shape.as_list()) if shape.is_fully_defined() else None


def _look_at_tensor(tensor: Any) -> Result:
    dtype, shape = tensor.dtype.base_dtype, shape_of(tensor)
    name = dtype.name
    item = 0 if name in NO_MEMORY else dtype.size
    return Result(tensor.name, name, item, shape, may_be_shape(name, shape), tensor)


def _attrs(operation: Any) -> dict[str, Any]:
    attrs: dict[str, Any] = {}
    definition = operation.node_def.attr
    for name in _KEPT:
        if name not in definition:
            continue
        value = definition[name]
        which = value.WhichOneof("value")
        attrs[name] = list(value.list.i) if which == "list" else getattr(value, which)
    if operation.type == "Const":
        shape = definition["value"].tensor.tensor_shape
        if math.prod(side.size for side in shape.dim) <= SMALL_CONSTANT:
            from oomproof.frameworks.tensorflow import array_of

            attrs["value"] = array_of(definition["value"].tensor).ravel().tolist()
    return attrs
