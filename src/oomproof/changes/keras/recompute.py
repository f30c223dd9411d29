"""Blocks of a Keras model that keep only what goes in and out; the backward pass computes the rest again.

Keras has RematScope for this; with TensorFlow, Keras 3.15 hands it keyword arguments, which a compiled step refuses,
and statistics of batch normalisation would be updated twice. Here a block is computed again in a scope in which no
variable changes, and starts with the variables that it had the first time: random layers draw the same.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras

from oomproof.changes.keras.blocks import Block, blocks_of, nodes_of
from oomproof.errors import CannotDo
from oomproof.frameworks.keras import form_of_outputs, inputs_of, outputs_of, own_run, replace_run, run_of

NONE, ALL = "none", "all"
Body = Callable[..., list[Any]]


def recompute(model: Any, setting: str) -> Any:
    """Lets the blocks that ``setting`` names (``conv2_block1_add,conv2_block2_add``; ``all``; ``none``) be computed
    again. The model's layers, weights and files stay as they are. Returns the model."""
    wanted = names_in(setting)
    known = {block.path: block for block in blocks_of(model)}
    if wanted == (ALL,):
        wanted = tuple(name for name, block in known.items() if block.repeatable)
    unknown = [name for name in wanted if name not in known or not known[name].repeatable]
    if unknown:
        may = ", ".join(name for name, block in known.items() if block.repeatable) or "none"
        raise CannotDo(
            f"checkpoint={setting}: '{unknown[0]}' ends no block of {model.name} that can be computed again; expected "
            f"all, none, or some of: {may}"
        )
    by_graph: dict[int, list[Block]] = defaultdict(list)
    for block in known.values():
        replace_run(block.graph, None)
        if block.path in wanted:
            by_graph[id(block.graph)].append(block)
    for blocks in by_graph.values():
        _install(blocks[0].graph, blocks)
    return model


@contextlib.contextmanager
def blocks_recomputed(model: Any, setting: str) -> Iterator[None]:
    """For as long as a model is looked at; ``none`` leaves it as it is."""
    if not names_in(setting):
        yield
        return
    graphs = {id(block.graph): block.graph for block in blocks_of(model)}
    before = {number: own_run(graph) for number, graph in graphs.items()}
    recompute(model, setting)
    try:
        yield
    finally:
        for number, graph in graphs.items():
            replace_run(graph, before[number])


def names_in(setting: str) -> tuple[str, ...]:
    parts = (part.strip() for part in setting.split(","))
    return tuple(part for part in parts if part and part != NONE)


def _install(graph: Any, blocks: Sequence[Block]) -> None:
    """Replaces Keras's way through the layers of this one model (Function._run_through_graph, Keras 3.15)."""
    plain = run_of(graph)
    first = {id(block.nodes[0]): block for block in blocks}
    inside = {id(node) for block in blocks for node in block.nodes}

    def run(inputs: Any, operation_fn: Callable[[Any], Any] = lambda op: op, call_fn: Any = None) -> Any:
        given = keras.tree.flatten(inputs)
        if call_fn is not None or any(isinstance(each, keras.KerasTensor) for each in given):
            return plain(inputs, operation_fn, call_fn)
        values = {id(tensor): value for tensor, value in zip(inputs_of(graph), given, strict=True)}
        for node in nodes_of(graph):
            if id(node) in first:
                _run_again(first[id(node)], values, operation_fn)
            elif id(node) not in inside:
                _run((node,), values, operation_fn)
        return keras.tree.pack_sequence_as(form_of_outputs(graph), [values[id(each)] for each in outputs_of(graph)])

    replace_run(graph, run)


def _run(nodes: Sequence[Any], values: dict[int, Any], operation_fn: Callable[[Any], Any]) -> None:
    for node in nodes:
        args, kwargs = node.arguments.fill_in(values)
        made = operation_fn(node.operation)(*args, **kwargs)
        for tensor, value in zip(node.outputs, keras.tree.flatten(made), strict=True):
            values[id(tensor)] = value


def _run_again(block: Block, values: dict[int, Any], operation_fn: Callable[[Any], Any]) -> None:
    made = {id(tensor) for node in block.nodes for tensor in node.outputs}
    given = list(dict.fromkeys(id(tensor) for node in block.nodes for tensor in node.input_tensors))
    given = [each for each in given if each not in made]
    last = [id(tensor) for tensor in block.outputs]

    def body(*tensors: Any) -> list[Any]:
        inner = dict(zip(given, tensors, strict=True))
        _run(block.nodes, inner, operation_fn)
        return [inner[each] for each in last]

    layers = [node.operation for node in block.nodes if isinstance(node.operation, keras.Layer)]
    results = again_in_backward(body, [values[each] for each in given], layers)
    values.update(zip(last, results, strict=True))


def again_in_backward(body: Body, tensors: Sequence[Any], layers: Sequence[Any]) -> list[Any]:
    """``body(*tensors)``, of which nothing is kept for the backward pass but ``tensors``. ``layers`` are those that the
    body calls."""
    import tensorflow as tf

    from oomproof.frameworks.tensorflow import stop_recording

    # The variables as they are now; by the time of the backward pass, this body has changed them.
    state = {id(each): (each, tf.identity(each.value)) for layer in layers for each in layer.non_trainable_variables}

    def forward(*given: Any) -> Any:
        with stop_recording():
            results = body(*given)

        def backward(*upstream: Any, variables: Any = None) -> Any:
            return _gradients(body, given, upstream, list(variables or ()), list(state.values()))

        return results, backward

    return list(tf.custom_gradient(forward)(*tensors))


def _gradients(
    body: Body,
    given: Sequence[Any],
    upstream: Sequence[Any],
    variables: list[Any],
    state: list[tuple[Any, Any]],
) -> Any:
    import tensorflow as tf

    # Not before its turn has come: else all blocks would be computed again at once, and nothing saved.
    with tf.control_dependencies([each for each in upstream if each is not None]):
        held = [tf.identity(each) for each in given]
    floats = [each for each in held if each.dtype.is_floating]
    with tf.GradientTape(watch_accessed_variables=False) as tape, keras.StatelessScope(state_mapping=state):
        tape.watch([*floats, *variables])
        again = body(*held)
    found = tape.gradient(
        again, [*floats, *variables], output_gradients=upstream, unconnected_gradients=tf.UnconnectedGradients.ZERO
    )
    of_floats, of_variables = found[: len(floats)], found[len(floats) :]
    # The block before begins when this one is done with, whatever the order of a thread pool.
    with tf.control_dependencies(of_variables):
        going_on = iter([tf.identity(each) for each in of_floats])
    of_given = [next(going_on) if each.dtype.is_floating else None for each in held]
    return (of_given, of_variables) if variables else of_given
