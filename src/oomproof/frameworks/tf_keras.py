"""All that oomproof uses of Keras 2 (tf_keras) beyond its documented interface. Made for tf_keras 2.16 to 2.21.

The Object Detection API's feature extractors hold Functional models of Keras 2: graphs of layers whose way through them
can be replaced, as ``frameworks/keras.py`` does it for Keras 3.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

Values = dict[str, Any]
"""what each tensor of a graph is in one run, by the name that Keras has for it"""


def graphs_in(module: Any) -> list[Any]:
    """The Functional models that a tf.Module holds, the outer before the inner; Keras may hold one several times."""
    found = {id(each): each for each in module.submodules if hasattr(each, "_nodes_by_depth") and len(nodes_of(each))}
    return list(found.values())


def nodes_of(graph: Any) -> list[Any]:
    """Calls of layers, in the order in which Keras goes through them."""
    depths = sorted(graph._nodes_by_depth, reverse=True)
    return [node for depth in depths for node in graph._nodes_by_depth[depth] if not node.is_input]


def inputs_of(node: Any) -> tuple[str, ...]:
    return tuple(node.flat_input_ids)


def outputs_of(node: Any) -> tuple[str, ...]:
    return tuple(node.flat_output_ids)


def outputs_of_graph(graph: Any) -> tuple[str, ...]:
    return tuple(str(id(each)) for each in graph.outputs)


def first_values(graph: Any, inputs: Any) -> Values:
    """The values with which a run begins."""
    flat = graph._flatten_to_reference_inputs(inputs)
    return {
        str(id(reference)): graph._conform_to_reference_input(value, ref_input=reference)
        for reference, value in zip(graph.inputs, flat, strict=True)
    }


def run_nodes(nodes: Sequence[Any], values: Values, flatten: Callable[[Any], list[Any]]) -> None:
    """Calls the layers; what they make joins ``values``."""
    for node in nodes:
        # Keras takes a value out of its list each time that it is used.
        args, kwargs = node.map_arguments({name: [values[name]] * 2 for name in inputs_of(node)})
        made = flatten(node.layer(*args, **kwargs))
        values.update(zip(outputs_of(node), made, strict=True))


def pack_outputs(graph: Any, values: Values, pack: Callable[[Any, list[Any]], Any]) -> Any:
    return pack(graph._nested_outputs, [values[name] for name in outputs_of_graph(graph)])


def replace_run(graph: Any, run: Callable[..., Any]) -> None:
    object.__setattr__(graph, "_run_internal_graph", run)  # not __setattr__ of Keras, which would keep track of it


@contextlib.contextmanager
def without_updates(layers: Sequence[Any]) -> Iterator[None]:
    """While layers are called inside, statistics of batch normalisation stay as they are."""
    for layer in layers:
        object.__setattr__(layer, "add_update", lambda *_, **__: None)
    try:
        yield
    finally:
        for layer in layers:
            object.__delattr__(layer, "add_update")
