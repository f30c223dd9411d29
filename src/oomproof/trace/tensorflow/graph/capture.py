"""From a function of tensors to a graph as TensorFlow's runtime has it: arguments first, results last, shapes known.

The order of the nodes is kept as the runtime has it. It decides which of two ready operations is run first.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from oomproof.errors import JobError
from oomproof.frameworks.quiet import silent
from oomproof.frameworks.side_by_side import before_tensorflow

SHAPED = "InfeedDequeue"
"""stands for an input while grappler runs: of all operations without inputs, one whose shape it believes and keeps. An
_Arg would be right, but outside of a function its shape is forgotten (TensorFlow 2.21)"""
ARGUMENTS = frozenset({"_Arg", SHAPED})


@dataclass(frozen=True)
class Variable:
    """A variable that the step reads or writes."""

    node: str
    """its handle in the graph"""
    name: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    trainable: bool | None
    """None: nobody but the update's kernel knows it, as an optimizer's slot"""
    identity: int
    """id() of its handle, by which a model knows it again"""


@dataclass(frozen=True)
class Captured:
    definition: Any
    """GraphDef"""
    inputs: tuple[str, ...]
    """nodes that stand for the batch"""
    constants: tuple[str, ...]
    """nodes that stand for tensors which the function holds"""
    results: tuple[str, ...]
    """nodes that stand for what it returns"""
    targets: tuple[str, ...]
    """nodes that run for their effect"""
    variables: tuple[Variable, ...]
    function: Any = None
    """the ConcreteFunction itself, for those who want to run it; a graph of TensorFlow 1 has none"""


def tensorflow() -> Any:
    """TensorFlow, imported without its greetings, and kept off this machine's GPUs: a forecast needs none of them."""
    if "tensorflow" in sys.modules:
        return sys.modules["tensorflow"]
    before_tensorflow()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with silent():
        import tensorflow as tf

    # Once a GPU is in use its memory is taken already, and the variables may as well stay there.
    with contextlib.suppress(RuntimeError):
        tf.config.set_visible_devices([], "GPU")
    return tf


def capture(step: Callable[..., Any], batch: Sequence[Any]) -> Captured:
    """Traces ``step`` for tensors like ``batch`` (tensors, arrays or TensorSpecs, in any nesting).

    ``step`` is a plain function, a tf.function or a ConcreteFunction. Its variables must exist, or be made by it.
    """
    tf = tensorflow()
    concrete: Any = step
    if not hasattr(step, "captured_inputs"):
        made: Any = step if hasattr(step, "get_concrete_function") else tf.function(step)
        with tf.device("/CPU:0"):
            concrete = made.get_concrete_function(*tf.nest.map_structure(_spec, tuple(batch)))
    graph = concrete.graph
    handles = {id(variable.handle): variable for variable in graph.variables}
    variables: dict[str, Variable] = {}
    constants: list[str] = []
    captured: set[str] = set()
    for outside, inside in graph.captures:
        name = inside.op.name
        captured.add(name)
        if outside.dtype != tf.resource:
            constants.append(name)
        elif (found := _variable(tf, name, outside, handles.get(id(outside)))) is not None:
            variables[name] = found
    if not variables:
        raise JobError(
            "the step reads no variable; expected a training step, a function that updates a model's weights"
        )
    definition, results = _as_at_run_time(tf, concrete, variables)
    return Captured(
        definition,
        tuple(tensor.op.name for tensor in graph.inputs if tensor.op.name not in captured),
        tuple(constants),
        results,
        tuple(node.name for node in graph.control_outputs or ()),
        tuple(variables.values()),
        concrete,
    )


def _spec(part: Any) -> Any:
    tf = tensorflow()
    if isinstance(part, tf.TypeSpec):
        return part
    tensor = part if hasattr(part, "shape") and hasattr(part, "dtype") else tf.convert_to_tensor(part)
    return tf.TensorSpec(tensor.shape, tf.as_dtype(tensor.dtype))


def _variable(tf: Any, node: str, handle: Any, variable: Any) -> Variable | None:
    """What is known of a captured handle; None where it is not a variable (a lookup table, an iterator)."""
    trainable = None
    if variable is not None:
        name, shape, dtype, trainable = variable.name, variable.shape, variable.dtype, bool(variable.trainable)
    else:
        from oomproof.frameworks.tensorflow import handle_data_of

        data = handle_data_of(handle)
        if data is None or not data.is_set or len(data.shape_and_type) != 1:
            return None
        name = node
        shape, dtype = tf.TensorShape(data.shape_and_type[0].shape), tf.as_dtype(data.shape_and_type[0].dtype)
    sides = tuple(shape.as_list()) if shape.rank is not None else ()
    if None in sides:
        raise JobError(f"the variable {name} has no fixed shape ({shape}); expected one whose size is known")
    size = 0 if dtype.base_dtype in (tf.string, tf.variant, tf.resource) else dtype.base_dtype.size
    return Variable(node, name, sides, dtype.base_dtype.name, math.prod(sides) * size, trainable, id(handle))


def _as_at_run_time(tf: Any, concrete: Any, variables: dict[str, Variable]) -> tuple[Any, tuple[str, ...]]:
    """The GraphDef, and its nodes that stand for results."""
    graph = concrete.graph
    plain = graph.as_graph_def()
    nodes = {node.name: node for node in plain.node}
    arguments = [tensor.op.name for tensor in graph.inputs]
    # The function lists a node after those it waits for; the graph, in the order in which they were made.
    inner = [node.name for node in concrete.function_def.node_def]
    if set(inner) != nodes.keys() - set(arguments):
        inner = [name for name in nodes if name not in set(arguments)]
    definition = type(plain)()
    definition.versions.CopyFrom(plain.versions)
    definition.library.CopyFrom(plain.library)
    for index, tensor in enumerate(graph.inputs):
        add_argument(tf, definition, tensor, index, variables.get(tensor.op.name))
    for name in inner:
        definition.node.add().CopyFrom(nodes[name])
    return definition, add_results(definition, graph.outputs)


def add_argument(tf: Any, definition: Any, tensor: Any, index: int, variable: Variable | None) -> None:
    """A node that stands for something that is handed in: a tensor, or the handle of a variable."""
    node = definition.node.add(name=tensor.op.name, op="_Arg")
    if tensor.dtype not in (tf.resource, tf.variant) and tensor.shape.is_fully_defined():
        node.op = SHAPED
        node.attr["dtype"].type = tensor.dtype.as_datatype_enum
        node.attr["shape"].shape.CopyFrom(tensor.shape.as_proto())
        return
    node.attr["T"].type = tensor.dtype.as_datatype_enum
    node.attr["index"].i = index
    if variable is not None:
        node.attr["_handle_dtypes"].list.type.append(tf.as_dtype(variable.dtype).as_datatype_enum)
        node.attr["_handle_shapes"].list.shape.add().CopyFrom(tf.TensorShape(variable.shape).as_proto())


def add_results(definition: Any, outputs: Sequence[Any]) -> tuple[str, ...]:
    """Nodes that stand for what is returned."""
    results = []
    for index, tensor in enumerate(outputs):
        results.append(f"result_{index}_RetVal")
        node = definition.node.add(name=results[-1], op="_Retval", input=[tensor.name.removesuffix(":0")])
        node.attr["T"].type = tensor.dtype.as_datatype_enum
        node.attr["index"].i = index
    return tuple(results)
