"""Which functions of a script are training steps, told from their graphs; and results that stand in for theirs."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from oomproof.trace.tensorflow.graph.capture import Captured, Variable

_WRITES = ("ResourceApply", "ResourceSparseApply", "ResourceScatter", "AssignSubVariableOp", "AssignVariableOp")


def updates_weights(concrete: Any) -> bool:
    """Whether a ConcreteFunction writes to a variable that is trained, itself or in a function that it calls."""
    held = {inside.name: id(outside) for outside, inside in concrete.graph.captures}
    trained = {id(each.handle) for each in concrete.graph.variables if each.trainable}
    for operation in concrete.graph.get_operations():
        if operation.type.startswith(_WRITES) and held.get(operation.inputs[0].name) in trained:
            return True
    library = concrete.graph.as_graph_def().library
    return any(node.op.startswith(_WRITES) for function in library.function for node in function.node_def)


def make_up_results(tf: Any, concrete: Any) -> Any:
    """What the function would return, with made-up numbers: a loss of 0.5."""

    def make(spec: Any) -> Any:
        if not isinstance(spec, (tf.TensorSpec, tf.Tensor)):
            return None
        sides = [1 if side is None else side for side in (spec.shape.as_list() if spec.shape.rank is not None else [])]
        if spec.dtype.is_floating:
            return tf.fill(sides, tf.cast(0.5, spec.dtype))
        return tf.fill(sides, "") if spec.dtype == tf.string else tf.zeros(sides, spec.dtype)

    return tf.nest.map_structure(make, concrete.structured_outputs)


def with_others(tf: Any, captured: Captured) -> Captured:
    """A step with every variable that exists beside its own: they are on the GPU all the same."""
    known = {each.identity for each in captured.variables}
    others = [
        Variable(
            f"(beside the step) {number}",
            each.name,
            tuple(each.shape.as_list()),
            each.dtype.base_dtype.name,
            each.shape.num_elements() * each.dtype.base_dtype.size,
            bool(each.trainable),
            id(each.handle),
        )
        for number, each in enumerate(live_variables(tf))
        if id(each.handle) not in known
    ]
    return replace(captured, variables=(*captured.variables, *others))


def live_variables(tf: Any) -> Iterator[Any]:
    """Variables with numbers in them; counters and other single values are not worth a word."""
    for each in gc.get_objects():
        is_variable = issubclass(type(each), tf.Variable) and each.shape.is_fully_defined() and each.shape.rank
        if is_variable and (each.dtype.base_dtype.is_floating or each.dtype.base_dtype.is_integer):
            yield each
