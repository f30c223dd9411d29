"""Blocks of the API's feature extractors that keep only what goes in and out; backward computes the rest again.

As changes/keras/recompute.py for Keras 3, whose way to compute without changing variables Keras 2 has not: here, layers
are told to leave their statistics alone the second time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from oomproof.errors import CannotDo
from oomproof.frameworks import tf_keras

_FEW = 2
"""layers with weights after which a block may end"""
_NOT_AGAIN = ("Dropout", "Random", "Sync", "Masking", "Noise")
"""in names of layers that draw anew, or speak with other replicas, each time they are called"""


@dataclass(frozen=True)
class LayerStretch:
    nodes: tuple[Any, ...]
    given: tuple[str, ...]
    made: tuple[str, ...]
    """tensors that are needed after it"""
    repeatable: bool


def recompute_blocks(tf: Any, model: Any) -> int:
    """Lets the Functional models inside ``model``, a DetectionModel whose layers are built, run block by block. Returns
    the number of blocks that are computed again; CannotDo where there are none."""
    count = 0
    for graph in tf_keras.graphs_in(model):
        blocks = list(blocks_of(graph))
        again = sum(block.repeatable for block in blocks)
        if again > 1:  # a single block would be held whole when it is computed again
            _install(tf, graph, blocks)
            count += again
    if not count:
        raise CannotDo(
            "recompute: the feature extractor is not a graph of Keras layers with a narrow place between its blocks; "
            "micro-batches work for every model"
        )
    return count


def blocks_of(graph: Any) -> Iterator[LayerStretch]:
    """Stretches of layers, each ending where one tensor alone is needed by the layers that follow."""
    nodes = tf_keras.nodes_of(graph)
    kept = set(tf_keras.outputs_of_graph(graph))
    needed = [{name for node in nodes[place:] for name in tf_keras.inputs_of(node)} for place in range(len(nodes) + 1)]
    start, made_so_far = 0, set[str]()
    for place, node in enumerate(nodes, 1):
        made_so_far |= set(tf_keras.outputs_of(node))
        inside = nodes[start:place]
        narrow = len(made_so_far & needed[place]) <= 1 and sum(map(_has_kernel, inside)) >= _FEW
        if narrow or place == len(nodes):
            made = [name for each in inside for name in tf_keras.outputs_of(each)]
            given = dict.fromkeys(name for each in inside for name in tf_keras.inputs_of(each) if name not in made)
            going_on = tuple(name for name in made if name in needed[place] | kept)
            yield LayerStretch(tuple(inside), tuple(given), going_on, all(map(_is_repeatable, inside)))
            start = place


def _install(tf: Any, graph: Any, blocks: Sequence[LayerStretch]) -> None:
    def run(inputs: Any, training: Any = None, mask: Any = None) -> Any:
        values = tf_keras.first_values(graph, inputs)
        for block in blocks:
            if block.repeatable:
                _run_again(tf, block, values)
            else:
                tf_keras.run_nodes(block.nodes, values, tf.nest.flatten)
        return tf_keras.pack_outputs(graph, values, tf.nest.pack_sequence_as)

    tf_keras.replace_run(graph, run)


def _run_again(tf: Any, block: LayerStretch, values: dict[str, Any]) -> None:
    def body(*tensors: Any) -> list[Any]:
        inner = dict(zip(block.given, tensors, strict=True))
        tf_keras.run_nodes(block.nodes, inner, tf.nest.flatten)
        return [inner[name] for name in block.made]

    layers = list({id(node.layer): node.layer for node in block.nodes}.values())
    made = _again_in_backward(tf, body, [values[name] for name in block.given], layers)
    values.update(zip(block.made, made, strict=True))


def _again_in_backward(
    tf: Any, body: Callable[..., list[Any]], tensors: Sequence[Any], layers: Sequence[Any]
) -> list[Any]:
    """``body(*tensors)``, of which nothing is kept for the backward pass but ``tensors``."""
    from oomproof.frameworks.tensorflow import stop_recording

    def forward(*given: Any) -> Any:
        with stop_recording():
            results = body(*given)

        def backward(*upstream: Any, variables: Any = None) -> Any:
            watched = list(variables or ())
            # Not before its turn has come: else all blocks would be computed again at once, and nothing saved.
            with tf.control_dependencies([each for each in upstream if each is not None]):
                held = [tf.identity(each) for each in given]
            with tf.GradientTape(watch_accessed_variables=False) as tape, tf_keras.without_updates(layers):
                tape.watch([*held, *watched])
                again = body(*held)
            found = tape.gradient(
                again, [*held, *watched], output_gradients=upstream,
                unconnected_gradients=tf.UnconnectedGradients.ZERO,
            )  # fmt: skip
            of_given, of_variables = found[: len(held)], found[len(held) :]
            # The block before begins when this one is done with, whatever the order of a thread pool.
            with tf.control_dependencies(of_variables):
                of_given = [tf.identity(each) for each in of_given]
            return (of_given, of_variables) if watched else of_given

        return results, backward

    return list(tf.custom_gradient(forward)(*tensors))


def _has_kernel(node: Any) -> bool:
    return bool(node.layer.trainable_weights) and "BatchNorm" not in type(node.layer).__name__


def _is_repeatable(node: Any) -> bool:
    names = [each.__name__ for each in type(node.layer).__mro__]
    return not any(word in name for word in _NOT_AGAIN for name in names)
