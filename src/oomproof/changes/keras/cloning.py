"""Copies of Keras models that differ in what a plan changes: precision, widths, image size."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import keras

from oomproof.errors import CannotDo, InputError
from oomproof.frameworks.keras import graph_in, has_graph, inputs_of, maker_of, outputs_of
from oomproof.frameworks.quiet import silent

Change = Callable[[Any], Mapping[str, Any]]
"""what changes in the config of a layer"""


def clone_model(
    model: Any,
    what: str,
    *,
    change: Change = lambda layer: {},
    policy: str = "",
    image_size: tuple[int, int] | None = None,
    weights: bool = True,
) -> Any:
    """A copy, not compiled. ``what`` says in words what it is made for. Layers whose weights have the shapes they had
    take over their values, unless ``weights`` says that nobody will look at them."""
    if not clonable(model):
        raise _own_class(model, what)
    last = _last_layers(model) if policy.startswith("mixed") else set()
    pairs: list[tuple[Any, Any]] = []

    def copy(layer: Any) -> Any:
        # An operation, or a Lambda, whose config would be its code, has no weights: it serves in both models.
        if not isinstance(layer, keras.Layer) or isinstance(layer, keras.layers.Lambda):
            return layer
        config = {**layer.get_config(), **change(layer)}
        if policy:
            config["dtype"] = "float32" if id(layer) in last else policy
        made = type(layer).from_config(config)
        pairs.append((layer, made))
        return made

    # On any backend, Keras 3.15 loads TensorFlow to write a layer's config, which greets.
    greets = silent() if "tensorflow" not in sys.modules else contextlib.nullcontext()
    with _under(policy), _compile_state_hidden(model), greets:
        try:
            inputs = None if image_size is None else _inputs(model, image_size)
            result = keras.models.clone_model(model, input_tensors=inputs, clone_function=copy, recursive=True)
        except InputError:
            raise
        # Layers are anyone's code: what they raise when they are built otherwise is as various as they are.
        except Exception as error:
            reason = next((line for line in str(error).splitlines() if line.strip()), "").strip()
            raise CannotDo(
                f"{what} does not work for this model ({type(error).__name__}: {reason}); leave it as it is, or build "
                "the model that way by yourself"
            ) from error
    if not _same_training(model, result):
        raise _own_class(model, what)
    if weights:
        for old, new in pairs:
            if [tuple(each.shape) for each in old.weights] == [tuple(each.shape) for each in new.weights]:
                new.set_weights(old.get_weights())
    return result


def clonable(model: Any) -> bool:
    """Whether the model is a graph of layers, which can be walked and laid out anew."""
    return isinstance(model, keras.Sequential) or has_graph(model)


def _same_training(one: Any, other: Any) -> bool:
    """clone_model gives a plain model where it cannot call the constructor of a class: its training would be lost."""
    return all(getattr(type(one), name) is getattr(type(other), name) for name in ("train_step", "compute_loss"))


def _own_class(model: Any, what: str) -> InputError:
    return InputError(
        f"{what} needs a copy of the model, and {type(model).__name__} is a class of its own, whose code decides how "
        "it is built: expected a Functional or Sequential model; build it that way by yourself"
    )


def _last_layers(model: Any) -> set[int]:
    """Layers that give what the loss looks at: they stay in float32, as Keras's guide to mixed precision asks for."""
    graph = graph_in(model) if isinstance(model, keras.Sequential) else model
    if graph is None:
        return {id(model.layers[-1])}
    return {id(maker_of(tensor)) for tensor in outputs_of(graph)}


def _inputs(model: Any, image_size: tuple[int, int]) -> Any:
    graph = graph_in(model) if isinstance(model, keras.Sequential) else model
    images = [tensor for tensor in inputs_of(graph) if len(tensor.shape) == 4] if graph is not None else []
    if len(images) != 1 or len(inputs_of(graph)) != 1:
        raise CannotDo(
            f"image_size={image_size[0]}x{image_size[1]}: expected a model with one input of images (height, width, "
            f"channels); {model.name} has others; build it for another size by yourself"
        )
    [tensor] = images
    made = keras.Input((*image_size, tensor.shape[-1]), dtype=tensor.dtype, name=tensor.name)
    return made if isinstance(model, keras.Sequential) else keras.tree.map_structure(lambda _: made, model.input)


@contextlib.contextmanager
def _under(policy: str) -> Iterator[None]:
    """Layers that layers make for themselves take the policy that is in force."""
    before = keras.config.dtype_policy()
    try:
        if policy:
            keras.config.set_dtype_policy(policy)
        yield
    finally:
        keras.config.set_dtype_policy(before)


@contextlib.contextmanager
def _compile_state_hidden(model: Any) -> Iterator[None]:
    """clone_model compiles the copy from a config, which a loss function of the user's does not survive."""
    compiled, model.compiled = model.compiled, False
    try:
        yield
    finally:
        model.compiled = compiled
