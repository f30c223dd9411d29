"""All that oomproof uses of Keras beyond its documented interface, each thing under a plain name.

Made for Keras 3.3 to 3.15; every name was last looked at in 3.15.1 and tried in 3.3.3. Nothing here imports Keras
before a job has: it reads its backend once.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from oomproof.frameworks.versions import KERAS

_RUN = "_run_through_graph"


@cache
def probe() -> None:
    """Looks, once, for what is used of models and layers; a version that lacks something is told in one line."""
    import keras

    with KERAS.names_needed():
        from keras.src.models.functional import Functional
    KERAS.check(
        (Functional, _RUN),
        (keras.Model, "_symbolic_build"),
        (keras.Layer, "_flatten_layers"),
        (keras.optimizers.Optimizer, "build"),
        (keras, "StatelessScope"),
        (keras, "KerasTensor"),
    )


# -- models --------------------------------------------------------------------------------------------------------


def all_layers(model: Any, *, itself: bool = True) -> list[Any]:
    """The layers of a model and the layers inside them."""
    return list(model._flatten_layers(include_self=itself, recursive=True))


def layers_inside(layer: Any) -> list[Any]:
    """The layers that a layer which is not a model keeps as attributes."""
    return list(getattr(layer, "_layers", None) or [])


def build_on_shapes(model: Any, batch: Any) -> None:
    """Makes the variables of a model and its metrics, from KerasTensors like a batch."""
    probe()
    model._symbolic_build(data_batch=batch)


def compile_config_of(model: Any) -> Any:
    """What compile() was called with; None where it was not."""
    return getattr(model, "_compile_config", None)


def is_distributed(model: Any) -> bool:
    """Whether the model was made under a tf.distribute strategy."""
    return bool(getattr(model, "_distribute_strategy", None))


# -- graphs of layers ----------------------------------------------------------------------------------------------


def has_graph(layer: Any) -> bool:
    """Whether it is a Functional model, or what a Sequential one has inside."""
    return hasattr(layer, "_nodes_by_depth")


def graph_in(sequential: Any) -> Any:
    """The Functional model inside a Sequential one; None before it knows its input."""
    return sequential._functional


def nodes_in_order(graph: Any) -> list[Any]:
    """Calls of layers, in the order in which Keras goes through them, inputs included."""
    by_depth = graph._nodes_by_depth
    return [node for depth in sorted(by_depth, reverse=True) for node in by_depth[depth]]


def inputs_of(graph: Any) -> list[Any]:
    return list(graph._inputs)


def outputs_of(graph: Any) -> list[Any]:
    return list(graph._outputs)


def form_of_outputs(graph: Any) -> Any:
    """The lists and dicts that a graph's outputs come in."""
    return graph._outputs_struct


def maker_of(tensor: Any) -> Any:
    """The layer or operation that has made a symbolic tensor."""
    return tensor._keras_history.operation


def own_run(graph: Any) -> Any:
    """The way through the layers that was put in the place of Keras's own for this graph, or None."""
    return vars(graph).get(_RUN)


def run_of(graph: Any) -> Callable[..., Any]:
    """The way through its layers that a graph has: run(inputs, operation_fn, call_fn)."""
    run: Callable[..., Any] = getattr(graph, _RUN)
    return run


def replace_run(graph: Any, run: Callable[..., Any] | None) -> None:
    """Puts another in its place; None brings Keras's own back."""
    vars(graph).pop(_RUN, None)
    if run is not None:
        object.__setattr__(graph, _RUN, run)  # a layer's own __setattr__ would track it


# -- recurrent layers ----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def as_on_gpu() -> Iterator[None]:
    """Inside, Keras on TensorFlow takes the kernels that it takes where there is a GPU: cuDNN's for LSTM and GRU."""
    rnn = _recurrent_kernels()
    asked = rnn._is_gpu_available
    rnn._is_gpu_available = lambda: True
    try:
        yield
    finally:
        rnn._is_gpu_available = asked


def goes_to_cudnn(layer: Any) -> bool:
    """Whether a layer is an LSTM or GRU that Keras on TensorFlow has cuDNN compute where there is a GPU."""
    import keras

    if not isinstance(layer, (keras.layers.LSTM, keras.layers.GRU)) or layer.use_cudnn not in ("auto", True):
        return False
    cell = layer.cell
    own = {"reset_after": cell.reset_after} if isinstance(layer, keras.layers.GRU) else {}
    with as_on_gpu():
        kernels = _recurrent_kernels()
        return bool(
            kernels.cudnn_ok(cell.activation, cell.recurrent_activation, layer.unroll, use_bias=cell.use_bias, **own)
        )


def _recurrent_kernels() -> Any:
    with KERAS.names_needed():
        rnn = importlib.import_module("keras.src.backend.tensorflow.rnn")  # a function there has the module's name
    KERAS.check((rnn, "_is_gpu_available"), (rnn, "cudnn_ok"))
    return rnn


# -- optimizers ----------------------------------------------------------------------------------------------------


def learning_rate_of(optimizer: Any) -> Any:
    """The variable, or the schedule itself."""
    return optimizer._learning_rate


def step_count_of(optimizer: Any) -> Any:
    """The variable that counts micro-batches (``iterations`` counts updates)."""
    return optimizer._iterations


# -- variables on PyTorch --------------------------------------------------------------------------------------------


def tensor_of(variable: Any) -> Any:
    """The torch.nn.Parameter behind a variable."""
    return variable._value


def replace_tensor(variable: Any, value: Any) -> None:
    variable._value = value


def track_tensors(layer: Any) -> None:
    """A layer is a torch.nn.Module too, with a list of the tensors that its variables have: made anew."""
    if hasattr(layer, "_torch_params"):
        layer._track_variables()


def torch_dtype_of(dtype: Any) -> Any:
    with KERAS.names_needed():
        from keras.src.backend.torch.core import to_torch_dtype
    return to_torch_dtype(dtype)


def count_traces(train_function: Any) -> int:
    """How often TensorFlow has traced a step: Keras keeps its tf.functions in the closure of ``train_function`` (Keras
    3.3 to 3.15); the largest of their counts. 0 where there is none, as on other backends."""
    most, left = 0, [train_function]
    seen: set[int] = set()
    while left:
        each = left.pop()
        if id(each) in seen or len(seen) > 100:  # a closure may hold anything
            continue
        seen.add(id(each))
        count = getattr(each, "experimental_get_tracing_count", None)
        if callable(count):
            most = max(most, int(count()))
        for cell in getattr(each, "__closure__", None) or ():
            if callable(getattr(cell, "cell_contents", None)):
                left.append(cell.cell_contents)
    return most
