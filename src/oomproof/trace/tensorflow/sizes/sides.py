"""Sides of shapes that are not known before a step runs: what a mask leaves over, what NMS keeps.

Where such a side begins, a rule gives it a number (bounds.py). From there on TensorFlow's own shape functions say what
follows: the operations are made once more, with these numbers, in a graph that is never run.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from oomproof.trace.tensorflow.buffers import lists
from oomproof.trace.tensorflow.buffers.lists import Elements, Shape
from oomproof.trace.tensorflow.graph.graph import Ref
from oomproof.trace.tensorflow.graph.operations import NO_MEMORY, GraphOperation, may_be_shape, shape_of
from oomproof.trace.tensorflow.sizes.bounds import GROWS, RESERVES, Case, bound_reserves, bound_sides, from_inputs


@dataclass(frozen=True)
class Handed:
    """What is known of a tensor that a loop or a branch is handed."""

    shape: Shape
    elements: Elements | None = None
    """where it is a list"""
    value: Any = None
    """where it may be a shape, and stays as it is"""
    variable: HandledVariable | None = None
    """where it is a handle"""
    by_data: bool = False
    """whether the data decide on its size"""


@dataclass(frozen=True)
class HandledVariable:
    """What stands behind a handle, as attributes of the operation that makes one."""

    dtype: Any
    shape: Any


ARGUMENTS = frozenset({"Placeholder", "_Arg"})
HANDLE = "VarHandleOp"


class Sides:
    """Shapes of the tensors of one page. ``share``: how much is left of what the data decides on, 1 for all of it. With
    ``unknown``, every side that is not known counts as that, whatever it could be."""

    def __init__(self, tf: Any, share: float, unknown: int | None = None) -> None:
        self.tf = tf
        self.share = share
        self.unknown = unknown
        self.given: dict[str, Handed] = {}
        """arguments by name, where the caller knows more of them than the function"""
        self.open = 0
        """tensors with a side that the data decide on"""
        self.without_bound: list[str] = []
        """operations whose result may be larger than was counted"""
        self.lists: dict[Ref, Elements] = {}
        self.variables: dict[Ref, HandledVariable] = {}
        """handles: a function does not know what its arguments stand for"""
        self._by_data: set[Ref] = set()
        """tensors whose size the data decide on; others are open only because a function does not say it"""
        self._graph = tf.Graph()
        self._create_op = inspect.unwrap(tf.Graph.create_op)
        """as it is called for every node: what wraps it, to warn of old arguments, takes as long again"""
        self._numbered: dict[Ref, Any] = {}
        """in that graph: tensors that have, or follow from, a side with a number from here"""
        self._known: dict[Ref, Any] = {}
        """as they were read; all others"""
        self._stand_ins: dict[Ref, Any] = {}
        """in that graph, for those that are needed there"""

    def of(self, operation: GraphOperation, inputs: Sequence[Ref], number: int) -> list[Shape]:
        """The shapes of what ``operation`` makes, which is written down as node ``number``."""
        results = operation.results
        is_open = [each.shape is None and each.has_memory for each in results]
        reserves = RESERVES.get(operation.type, ())
        for place in reserves:
            is_open[place] = False
        if self.unknown is None:
            self._note_list(operation, inputs, number)
            self._note_variable(operation, inputs, number)
            if (count := self._count_mask(operation, inputs)) is not None:
                self._numbered[number, 0] = count
                self._by_data.add((number, 0))
                return [tuple(count.shape.as_list())]
        source = self.lists.get(inputs[0]) if inputs else None
        follows = any(ref in self._numbered for ref in inputs) and any(each.may_be_shape for each in results)
        follows |= operation.type in lists.READS and source is not None and source.value is not None
        follows |= self._find_given(operation).value is not None
        if not any(is_open) and not follows:
            self._known.update(((number, index), each.tensor) for index, each in enumerate(results))
            shapes = [each.shape or () for each in results]
            kept = self._bound_reserves(operation, shapes) if reserves else ()
            for place, shape in zip(reserves, kept, strict=True):
                shapes[place] = shape
            return shapes
        if self.unknown is not None:
            self.open += sum(is_open)
            return [() if index in reserves else self._fill_shape(each.tensor) for index, each in enumerate(results)]
        made, is_bound = self._make_results(operation, [self._here(ref) for ref in inputs], source)
        if is_bound or self._follows_data(operation, inputs, source):
            self.open += sum(is_open)
            self._by_data.update((number, index) for index in range(len(made)))
        self._numbered.update(((number, index), tensor) for index, tensor in enumerate(made))
        return [shape_of(tensor) or () for tensor in made]

    def add(self, inner: Sides) -> None:
        """Counts what a loop's body has, too."""
        self.open += inner.open
        self.without_bound += inner.without_bound

    def same(self, ref: Ref, source: Ref) -> None:
        """``ref`` is ``source`` under another name."""
        table = self._numbered if source in self._numbered else self._known
        table[ref] = table[source]
        if source in self.lists:
            self.lists[ref] = self.lists[source]
        if source in self.variables:
            self.variables[ref] = self.variables[source]
        if source in self._by_data:
            self._by_data.add(ref)

    def loop(
        self,
        operation: GraphOperation,
        inputs: Sequence[Ref],
        number: int,
        entered: Sequence[Handed],
        given_back: Sequence[Handed],
    ) -> list[Shape]:
        """A loop's results are as large as the larger of what goes in and what its body gives back."""
        found: list[Shape] = []
        for index, result in enumerate(operation.results):
            if inputs[index] in self.lists:
                self.lists[number, index] = self.lists[inputs[index]] | given_back[index].elements
            if inputs[index] in self.variables:
                self.variables[number, index] = self.variables[inputs[index]]
            if result.shape is not None or not result.has_memory:
                self._known[number, index] = result.tensor
                found.append(result.shape or ())
                continue
            if self.unknown is not None:
                self.open += 1
                found.append(self._fill_shape(result.tensor))
                continue
            if entered[index].by_data or given_back[index].by_data:
                self.open += 1
                self._by_data.add((number, index))
            shape = max((handed[index].shape for handed in (entered, given_back)), key=math.prod)
            self._numbered[number, index] = self._placeholder(result.tensor.dtype, shape)
            found.append(shape)
        return found

    def _fill_shape(self, tensor: Any) -> Shape:
        sides = tensor.shape.as_list() if tensor.shape.rank is not None else [None]
        return tuple(self.unknown or 0 if side is None else side for side in sides)

    def _note_list(self, operation: GraphOperation, inputs: Sequence[Ref], number: int) -> None:
        op = operation.type
        if not inputs:
            elements = self._find_given(operation).elements
        elif op in lists.WRITES:
            item = inputs[lists.WRITES[op]]
            elements = lists.with_item(
                self.lists.get(inputs[0]), self._shape(item), self._value(item), item in self._by_data
            )
        elif op in lists.MAKERS or op == "TensorListFromTensor":
            count = self.tf.get_static_value(self._here(inputs[1]))
            elements = lists.make_list(op, [self._shape(inputs[0])], count, inputs[0] in self._by_data)
        else:
            elements = self.lists.get(inputs[0])
        if elements is not None:
            for index, result in enumerate(operation.results):
                if result.dtype == "variant":
                    self.lists[number, index] = elements

    def _note_variable(self, operation: GraphOperation, inputs: Sequence[Ref], number: int) -> None:
        if not any(result.dtype == "resource" for result in operation.results):
            return
        if operation.type == HANDLE:
            attrs = operation.original.node_def.attr
            found: HandledVariable | None = HandledVariable(attrs["dtype"], attrs["shape"])
        else:
            found = self.variables.get(inputs[0]) if inputs else self._find_given(operation).variable
        if found is not None:
            self.variables.update(((number, index), found) for index in range(len(operation.results)))

    def _follows_data(self, operation: GraphOperation, inputs: Sequence[Ref], source: Elements | None) -> bool:
        taken_out = operation.type in lists.READS and source is not None and source.by_data
        return taken_out or any(ref in self._by_data for ref in inputs) or self._find_given(operation).by_data

    def is_by_data(self, ref: Ref) -> bool:
        """Whether the data decide on a tensor's size."""
        return ref in self._by_data

    def _shape(self, ref: Ref) -> Shape | None:
        return shape_of(self._numbered[ref] if ref in self._numbered else self._known[ref])

    def _value(self, ref: Ref) -> Any:
        """Of what may be a shape: its value, where it follows from shapes alone."""
        tensor = self._numbered[ref] if ref in self._numbered else self._known[ref]
        return self.tf.get_static_value(tensor) if _may_be_shape(tensor) else None

    def hand_over(self, ref: Ref, stays: bool) -> Handed:
        """What a loop or a branch can know of a tensor; ``stays``: it is the same in all turns."""
        value = self._value(ref) if stays else None
        return Handed(self._shape(ref) or (), self.lists.get(ref), value, self.variables.get(ref), self.is_by_data(ref))

    def _count_mask(self, operation: GraphOperation, inputs: Sequence[Ref]) -> Any:
        """How many of a mask are set: a number on which shapes may depend. None for any other operation."""
        if operation.type != "Sum" or not operation.results[0].may_be_shape:
            return None
        source, shape = operation.original.inputs[0].op, operation.results[0].shape
        if source.type != "Cast" or source.inputs[0].dtype != self.tf.bool or shape is None:
            return None
        counted = self._shape(inputs[0])
        if counted is None:
            return None
        most = math.prod(counted) // max(1, math.prod(shape))
        with self._graph.as_default():
            return self.tf.constant(math.ceil(most * self.share), operation.original.outputs[0].dtype, shape)

    def _make_results(
        self, operation: GraphOperation, inputs: list[Any], source: Elements | None
    ) -> tuple[list[Any], bool]:
        """The operation's results in the graph of numbers, every side with one; and whether a bound was needed."""
        if operation.type in ARGUMENTS and operation.name in self.given:
            return [self._stand_in(operation.original.outputs[0].dtype, self._find_given(operation))], False
        if operation.type in lists.READS and source is not None and source.shape is not None:
            return self._take_out(operation, source), False
        if operation.type == "VariableShape" and inputs[0].op.type == HANDLE:
            return [self._shape_of_variable(operation, inputs[0])], False
        is_bound = False
        original = operation.original
        try:
            with self._graph.as_default():
                made = list(
                    self._create_op(
                        self._graph,
                        operation.type,
                        inputs,
                        [tensor.dtype for tensor in original.outputs],
                        attrs=dict(original.node_def.attr),
                        op_def=original.op_def,
                    ).outputs
                )
        # With numbers that are bounds, two shapes that are the same at run time need not agree.
        except (ValueError, TypeError, self.tf.errors.OpError):
            made = [self._placeholder(tensor.dtype, tensor.shape) for tensor in original.outputs]
        for index, tensor in enumerate(made):
            if shape_of(tensor) is not None or tensor.dtype.base_dtype.name in NO_MEMORY:
                continue
            is_bound = True
            case = Case(self.tf, inputs, tensor, len(made), self.share, source.room if source else None)
            sides = bound_sides(operation.type, case)
            if index in (reserves := RESERVES.get(operation.type, ())):
                kept = self._bound_reserves(operation, [shape_of(each) or () for each in made])
                sides = list(kept[reserves.index(index)])
            if sides is None or tensor.shape.rank not in (None, len(sides)):
                sides = from_inputs(inputs, tensor)
                if operation.type in GROWS or not inputs:
                    self.without_bound.append(operation.type)
            known = tensor.shape.as_list() if tensor.shape.rank is not None else sides
            tensor.set_shape([bound if side is None else side for side, bound in zip(known, sides, strict=True)])
        return made, is_bound

    def _bound_reserves(self, operation: GraphOperation, shapes: Sequence[Shape]) -> tuple[Shape, ...]:
        attrs = operation.original.node_def.attr
        return bound_reserves(operation.type, shapes[0], self.share, attrs, shapes[1])

    def _shape_of_variable(self, operation: GraphOperation, handle: Any) -> Any:
        """As a constant: TensorFlow does not find shapes that follow from this operation."""
        with self._graph.as_default():
            sides = [side.size for side in handle.op.get_attr("shape").dim]
            return self.tf.constant(sides, operation.original.outputs[0].dtype)

    def _take_out(self, operation: GraphOperation, source: Elements) -> list[Any]:
        item = Handed(source.shape or (), value=source.value)
        return [
            self._stand_in(tensor.dtype, item if index == lists.READS[operation.type] else Handed(()))
            for index, tensor in enumerate(operation.original.outputs)
        ]

    def _find_given(self, operation: GraphOperation) -> Handed:
        return self.given.get(operation.name, Handed(())) if operation.type in ARGUMENTS else Handed(())

    def _stand_in(self, dtype: Any, known: Handed) -> Any:
        if known.value is None:
            return self._placeholder(dtype, known.shape)
        with self._graph.as_default():
            return self.tf.constant(known.value, dtype)

    def _here(self, ref: Ref) -> Any:
        """The tensor in the graph of numbers; one that has nothing to do with unknown sides stands there by its shape,
        or by its value where that is known."""
        if ref in self._numbered:
            return self._numbered[ref]
        if ref not in self._stand_ins:
            tensor = self._known[ref]
            value = self.tf.get_static_value(tensor) if _may_be_shape(tensor) else None
            with self._graph.as_default():
                if value is not None:
                    self._stand_ins[ref] = self.tf.constant(value, tensor.dtype)
                elif (variable := self.variables.get(ref)) is not None:
                    attrs = {"dtype": variable.dtype, "shape": variable.shape}
                    self._stand_ins[ref] = self._graph.create_op(HANDLE, [], [tensor.dtype], attrs=attrs).outputs[0]
                else:
                    self._stand_ins[ref] = self._placeholder(tensor.dtype, tensor.shape)
        return self._stand_ins[ref]

    def _placeholder(self, dtype: Any, shape: Any) -> Any:
        with self._graph.as_default():
            return self.tf.compat.v1.placeholder(dtype, shape)


def _may_be_shape(tensor: Any) -> bool:
    return may_be_shape(tensor.dtype.base_dtype.name, shape_of(tensor))
