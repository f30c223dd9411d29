"""A step as programs for TensorFlow 1 write it: a graph that a session runs, with placeholders and variables in it.

Loops must be of the second kind (``tf.compat.v1.enable_control_flow_v2``): one node, not a cycle of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from oomproof.errors import JobError
from oomproof.trace.tensorflow.buffers.kernels import REF_VARIABLES
from oomproof.trace.tensorflow.graph.capture import Captured, Variable, add_argument, add_results, tensorflow

_CYCLES = frozenset({"NextIteration", "RefNextIteration"})


def capture_session(graph: Any, targets: Sequence[Any], fetches: Sequence[Any], inputs: Sequence[Any]) -> Captured:
    """What ``session.run([*targets, *fetches], {each of inputs: ...})`` runs. Shapes of ``inputs`` (placeholders) must
    be known; operations in ``targets`` run for their effect, tensors in ``fetches`` are returned."""
    tf = tensorflow()
    wanted = [*(each.name for each in targets), *(each.op.name for each in fetches), *(each.op.name for each in inputs)]
    plain = tf.compat.v1.graph_util.extract_sub_graph(graph.as_graph_def(), wanted)
    if any(node.op in _CYCLES for node in plain.node):
        raise JobError(
            "the graph has loops of TensorFlow 1, which go round in it; build it after "
            "tf.compat.v1.enable_control_flow_v2()"
        )
    trained = {variable.op.name for variable in graph.get_collection("trainable_variables")}
    variables = {
        node.name: _variable(tf, node, node.name in trained)
        for node in plain.node
        if node.op == "VarHandleOp" or node.op in REF_VARIABLES
    }
    given = [*inputs, *(graph.get_tensor_by_name(f"{n.name}:0") for n in plain.node if n.op == "VarHandleOp")]
    names = {tensor.op.name for tensor in given}
    definition = type(plain)()
    definition.versions.CopyFrom(plain.versions)
    definition.library.CopyFrom(plain.library)
    for index, tensor in enumerate(given):
        add_argument(tf, definition, tensor, index, variables.get(tensor.op.name))
    for node in plain.node:
        if node.name not in names:
            definition.node.add().CopyFrom(node)
    results = add_results(definition, fetches)
    return Captured(
        definition,
        tuple(tensor.op.name for tensor in inputs),
        (),
        results,
        tuple(each.name for each in targets),
        tuple(variables.values()),
    )


def _variable(tf: Any, node: Any, trained: bool) -> Variable:
    shape, dtype = tf.TensorShape(node.attr["shape"].shape), tf.as_dtype(node.attr["dtype"].type)
    if not shape.is_fully_defined():
        raise JobError(f"the variable {node.name} has no fixed shape ({shape}); expected one whose size is known")
    sides = tuple(shape.as_list())
    return Variable(node.name, node.name, sides, dtype.name, math.prod(sides) * dtype.size, trained, hash(node.name))
