"""A compiled Keras model's training step as a Timeline. Keras 3 with the TensorFlow backend."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from oomproof.errors import InputError
from oomproof.frameworks.keras import as_on_gpu, build_on_shapes, layers_inside
from oomproof.memory.about import About
from oomproof.memory.timeline import Timeline
from oomproof.trace.tensorflow.graph.capture import tensorflow
from oomproof.trace.tensorflow.trace_step import Dialect, Names, PreparedStep, prepare_step, timeline_of

NOT_JITTED = (
    "XLA: the figures are for jit_compile=False. Keras compiles with XLA on a GPU unless compile(jit_compile=False) "
    "says otherwise, and its memory is then planned by another compiler"
)


def trace_keras(
    model: Any,
    batch: Sequence[Any],
    *,
    dialect: Dialect = "cuda",
    capability: str = "8.0",
    unknown: int | None = None,
    about: About | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> Timeline:
    """``model`` is compiled; ``batch`` is what fit would hand to its train_step: (x, y) or (x, y, sample_weight), of
    tensors, arrays or TensorSpecs with the batch size as first side. Nothing is run, and the model is not changed but
    for being built. Its weights and the optimizer's variables exist in host memory meanwhile.

    ``about`` is what the caller knows; what plans want to know of the model is added to it.
    """
    step = prepare_keras(model, batch, dialect=dialect, capability=capability, unknown=unknown, progress=progress)
    known = describe_model(model, about or About(not_counted=(NOT_JITTED,)))
    return timeline_of(step, dialect, about=known, progress=progress)


def prepare_keras(
    model: Any,
    batch: Sequence[Any],
    *,
    dialect: Dialect = "cuda",
    capability: str = "8.0",
    unknown: int | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> PreparedStep:
    """The model's step, traced and read; ``timeline_of`` lays it out."""
    progress("building the model")
    build_variables(model, batch)
    scopes: dict[str, str] = {}
    names = Names(scopes, variables_of(model))
    tf = tensorflow()
    # As Keras itself does it: its code needs no translation, which would take longer than all the rest.
    step = tf.autograph.experimental.do_not_convert(lambda *data: model.train_step(data))
    with watching_layers(model, scopes), as_on_gpu() if dialect == "cuda" else contextlib.nullcontext():
        return prepare_step(
            tf.function(step, autograph=False),
            batch,
            names=names,
            dialect=dialect,
            capability=capability,
            unknown=unknown,
            progress=progress,
        )


def build_variables(model: Any, batch: Sequence[Any]) -> None:
    """Makes the variables of the model, its metrics and its optimizer, as the first call of fit would."""
    tf = tensorflow()
    if not getattr(model, "compiled", False) or getattr(model, "optimizer", None) is None:
        raise InputError(
            "the Keras model is not compiled; expected one that fit() could train: call model.compile(optimizer=..., "
            "loss=...) first"
        )
    specs = tf.nest.map_structure(_symbolic, tuple(batch))
    build_on_shapes(model, specs)
    if not model.trainable_variables:
        raise InputError("the Keras model has no weight to train: every layer is frozen; set trainable=True on some")
    if not model.optimizer.built:
        model.optimizer.build(model.trainable_variables)


def describe_model(model: Any, about: About) -> About:
    """``about`` with what plans want to know of a compiled model."""
    import keras

    optimizer = model.optimizer
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    norms = [layer for layer in layers_of(model).values() if isinstance(layer, keras.layers.BatchNormalization)]
    steps = int(getattr(inner, "gradient_accumulation_steps", None) or 1)
    return replace(
        about,
        model=type(model).__name__,
        optimizer=type(inner).__name__,
        batchnorms=sum(bool(layer.trainable) for layer in norms),
        precision=model.dtype_policy.name,
        details={**about.details, "loss_scaling": inner is not optimizer, "accumulation": steps},
    )


def layers_of(model: Any) -> dict[str, Any]:
    """Every layer by its path: names of the layers around it and its own, with dots. The model itself has its name."""
    found: dict[str, Any] = {model.name: model}

    def visit(layer: Any, path: str) -> None:
        for inner in getattr(layer, "layers", []) or layers_inside(layer):
            inner_path = f"{path}.{inner.name}" if path else inner.name
            if inner is not layer and inner_path not in found:
                found[inner_path] = inner
                visit(inner, inner_path)

    visit(model, "")
    return found


def variables_of(model: Any) -> dict[int, tuple[str, str]]:
    """(kind, owner) of every variable, by id() of its handle."""
    known: dict[int, tuple[str, str]] = {}

    def note(variable: Any, kind: str, owner: str) -> None:
        known.setdefault(id(variable.value.handle), (kind, owner))

    for path, layer in reversed(layers_of(model).items()):  # the innermost layer that holds it
        for variable in layer.variables:
            note(variable, "parameter" if variable.trainable else "buffer", path)
    owners = {variable.path: known[id(variable.value.handle)][1] for variable in model.trainable_variables}
    for variable in model.optimizer.variables:
        note(variable, "optimizer", _slot_owner(variable.path, owners))
    for variable in model.metrics_variables:
        note(variable, "buffer", "(metrics)")
    return known


def _slot_owner(path: str, owners: Mapping[str, str]) -> str:
    """An optimizer's variable is named after the weight it is for: adam/conv_kernel_momentum."""
    inner = path.partition("/")[2]
    for weight, owner in owners.items():
        if inner.startswith(weight.replace("/", "_")):
            return owner
    return "(optimizer)"


@contextlib.contextmanager
def watching_layers(model: Any, scopes: dict[str, str]) -> Iterator[None]:
    """While a step is traced, notes in which name scope each layer's operations are made.

    Scopes alone do not tell: the second call of ``conv2d`` and the layer ``conv2d_1`` may both be in ``conv2d_1``.
    """
    tf = tensorflow()

    def watch_call(call: Callable[..., Any], path: str) -> Callable[..., Any]:
        def inner(*args: Any, **kwargs: Any) -> Any:
            scope = tf.compat.v1.get_default_graph().get_name_scope()
            if scope:
                scopes.setdefault(scope, path)
            return call(*args, **kwargs)

        return inner

    # An InputLayer has no call; KerasHub's DeepLabV3 lists one among its layers.
    # Some layers are in it by several paths.
    layers = {id(layer): (path, layer) for path, layer in reversed(layers_of(model).items()) if hasattr(layer, "call")}
    for path, layer in layers.values():
        object.__setattr__(layer, "call", watch_call(layer.call, path))
    try:
        yield
    finally:
        for _, layer in layers.values():
            object.__delattr__(layer, "call")


def _symbolic(part: Any) -> Any:
    import keras

    tensor = part if hasattr(part, "shape") and hasattr(part, "dtype") else keras.ops.convert_to_tensor(part)
    return keras.KerasTensor(tuple(tensor.shape), dtype=keras.backend.standardize_dtype(tensor.dtype))
