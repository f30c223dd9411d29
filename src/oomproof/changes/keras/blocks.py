"""The blocks of a Keras model that can be computed again: stretches of its layers with little going in and out.

A block has the name of its last layer, after the names of the models around it: ``conv2_block1_out``,
``resnet50.conv2_block1_out``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import keras

from oomproof.frameworks.keras import all_layers, graph_in, has_graph, nodes_in_order, outputs_of

FEW, MANY = 2, 6
"""layers with weights after which a block ends: where a single tensor goes on; and wherever few do, as in a U-Net"""
MOST_GOING_ON = 3
_OWN_WAYS = ("Wrapper", "RNN", "SpectralNormalization", "Masking", "Embedding", "Lambda")
"""layers of Keras that keep more than variables, or hand on masks beside their tensors"""
_WEIGHTLESS = ("BatchNormalization", "LayerNormalization", "GroupNormalization")


@dataclass(frozen=True)
class Block:
    path: str
    graph: Any
    """the Functional model that it is a part of"""
    nodes: tuple[Any, ...]
    outputs: tuple[Any, ...]
    """tensors that are needed after it"""
    layers: tuple[str, ...]
    """paths of all its layers"""
    repeatable: bool
    """computed again, it gives the same and changes nothing"""


def blocks_of(model: Any) -> tuple[Block, ...]:
    """All blocks, in the order in which they run; none where the model is not a graph of layers."""
    if any(_name(layer) in ("Masking", "Embedding") for layer in all_layers(model, itself=False)):
        return ()  # masks are not tensors of the graph
    return tuple(_blocks(model, ""))


def _blocks(model: Any, prefix: str) -> Iterator[Block]:
    graph = graph_of(model)
    if graph is None:
        return
    nodes = nodes_of(graph)
    start = 0
    for place, node in enumerate(nodes):
        inner = graph_of(node.operation)
        if inner is not None or _ends(graph, nodes, start, place):
            yield from _block(graph, nodes, start, place if inner is not None else place + 1, prefix)
            start = place + 1
        if inner is not None:
            yield from _blocks(node.operation, f"{prefix}{node.operation.name}.")
    # What follows the last block is used at once when the backward pass begins.


def _block(graph: Any, nodes: Sequence[Any], start: int, end: int, prefix: str) -> Iterator[Block]:
    if start < end:
        inside = tuple(nodes[start:end])
        paths = tuple(f"{prefix}{node.operation.name}" for node in inside)
        outputs = tuple(find_crossing_tensors(graph, nodes, start, end))
        # A loss looks for the logits behind a softmax; a block would hide them.
        seen = not prefix and {id(each) for each in outputs} & {id(each) for each in outputs_of(graph)}
        yield Block(paths[-1], graph, inside, outputs, paths, not seen and all(map(_repeatable, inside)))


def graph_of(model: Any) -> Any:
    """The graph of layers that a Functional or Sequential model is; None for any other layer."""
    if isinstance(model, keras.Sequential):
        return graph_in(model)
    return model if isinstance(model, keras.Model) and has_graph(model) else None


def nodes_of(graph: Any) -> list[Any]:
    """Calls of layers, in the order in which Keras goes through them."""
    return [node for node in nodes_in_order(graph) if node.operation and not node.is_input]


def find_crossing_tensors(graph: Any, nodes: Sequence[Any], start: int, end: int) -> list[Any]:
    """Tensors that are made in ``nodes[start:end]`` and needed after."""
    later = {id(tensor) for node in nodes[end:] for tensor in node.input_tensors}
    later |= {id(tensor) for tensor in outputs_of(graph)}
    return [tensor for node in nodes[start:end] for tensor in node.outputs if id(tensor) in later]


def _ends(graph: Any, nodes: Sequence[Any], start: int, place: int) -> bool:
    heavy = sum(_has_kernel(node.operation) for node in nodes[start : place + 1])
    if heavy < FEW or place + 1 == len(nodes):
        return False
    return len(find_crossing_tensors(graph, nodes, 0, place + 1)) == 1 or (
        heavy >= MANY and len(find_crossing_tensors(graph, nodes, start, place + 1)) <= MOST_GOING_ON
    )


def _has_kernel(layer: Any) -> bool:
    return bool(getattr(layer, "trainable_weights", ())) and _name(layer) not in _WEIGHTLESS


def _repeatable(node: Any) -> bool:
    """Keras's own layers draw and count by variables alone, which can be kept from a second change. A penalty on what a
    layer returns would be left out of the gradient."""
    layer = node.operation
    if not isinstance(layer, keras.Layer):
        return True  # an operation of keras.ops
    if type(layer).__module__.partition(".")[0] not in ("keras", "keras_hub"):
        return False
    names = {each.__name__ for each in type(layer).__mro__}
    return not names & set(_OWN_WAYS) and getattr(layer, "activity_regularizer", None) is None


def _name(layer: Any) -> str:
    return type(layer).__name__
