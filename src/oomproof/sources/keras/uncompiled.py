"""Models that were saved for inference, without their training: what they are compiled with to be forecast."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oomproof.frameworks.keras import form_of_outputs, graph_in, has_graph, maker_of, outputs_of
from oomproof.sources.job import Setting

OPTIMIZER = "adam"
"""Keras's own default is RMSprop, with less state; most people train with Adam, which holds more"""
LOSSES = (
    *("own", "mse", "mae", "huber", "binary_crossentropy", "categorical_crossentropy"),
    "sparse_categorical_crossentropy",
)
_BY_ACTIVATION = {"softmax": "sparse_categorical_crossentropy", "sigmoid": "binary_crossentropy"}
_OTHERWISE = "mse"
"""takes the most of the usual losses: its targets are as large as the outputs"""
LOSS = Setting(
    "loss",
    "own",
    "of every output, for a file without one; own: sparse categorical cross-entropy after softmax, binary "
    "cross-entropy after sigmoid, else mse",
    LOSSES,
)


def is_compiled(config: Mapping[str, Any]) -> bool:
    """Whether a file's config says how the model was trained."""
    return bool(config.get("compile_config") or config.get("training"))


def compile_untrained(keras: Any, model: Any, loss: str) -> Any:
    """Compiles a model that was saved without its training. Returns it."""
    model.compile(OPTIMIZER, _losses(keras, model, loss))
    return model


def describe_training(keras: Any, model: Any, settings: Mapping[str, Any]) -> str:
    """What was taken for granted, for the report."""
    optimizer, loss = settings.get("optimizer", "own"), settings.get("loss", "own")
    losses = dict.fromkeys(keras.tree.flatten(_losses(keras, model, loss)))
    assumed = OPTIMIZER if optimizer == "own" else optimizer
    open_ones = [f"--set {name}=..." for name, value in (("optimizer", optimizer), ("loss", loss)) if value == "own"]
    ask = f"; {' and '.join(open_ones)} {'say what yours are' if len(open_ones) > 1 else 'says what yours is'}"
    return (
        f"the file was saved without its training: forecast with optimizer={assumed} and loss="
        f"{' and '.join(losses)}{ask if open_ones else ''}"
    )


def _losses(keras: Any, model: Any, loss: str) -> Any:
    """One for each output, in the form that the outputs come in."""
    graph = graph_in(model) if isinstance(model, keras.Sequential) else model
    if not has_graph(graph):
        return _OTHERWISE if loss == "own" else loss
    form, outputs = form_of_outputs(graph), outputs_of(graph)
    chosen = [_usual_loss(each) if loss == "own" else loss for each in outputs]
    return chosen[0] if len(chosen) == 1 and not isinstance(form, dict) else keras.tree.pack_sequence_as(form, chosen)


def _usual_loss(output: Any) -> str:
    """By the activation that an output comes from: a layer's own, or an operation of that name."""
    maker = maker_of(output)
    name = getattr(getattr(maker, "activation", None), "__name__", type(maker).__name__.lower())
    return _BY_ACTIVATION.get(name, _OTHERWISE)
