"""A compiled Keras model's training step as a Timeline. Keras 3 with the torch backend: its train_step is traced as
any other step of PyTorch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from oomproof.changes.torch.training import Training
from oomproof.errors import InputError
from oomproof.frameworks.keras import (
    build_on_shapes,
    replace_tensor,
    step_count_of,
    tensor_of,
    torch_dtype_of,
    track_tensors,
)
from oomproof.frameworks.torch import own_parameters
from oomproof.memory.about import About
from oomproof.memory.timeline import Timeline
from oomproof.trace.keras.on_tensorflow import describe_model, layers_of
from oomproof.trace.request import Progress, be_silent
from oomproof.trace.torch.gpu.dialect import Dialect
from oomproof.trace.torch.loop import Pieces
from oomproof.trace.torch.trace_step import trace_step

_KEPT = 64
"""values of a variable that are kept: scales, counts and rates, which steps branch on. Weights may be anything"""


def trace_keras(
    model: Any,
    batch: Sequence[Any],
    *,
    dialect: Dialect = "cuda",
    about: About | None = None,
    patience: int | None = None,
    progress: Progress = be_silent,
) -> Timeline:
    """``model`` is compiled; ``batch`` is what fit would hand to its train_step, as KerasTensors or anything else with
    a shape and a dtype. The model is not changed but for being built; its weights exist in host memory meanwhile."""
    progress("building the model")
    with pieces_of(model, batch) as pieces:
        known = about or About()
        timeline = trace_step(pieces, Training(), dialect=dialect, about=known, patience=patience, progress=progress)
    # Plans are for the Keras model, not for the stand-in that was traced.
    found = replace(timeline.about, separable=known.separable)
    return replace(timeline, about=describe_model(model, found))


@contextmanager
def pieces_of(model: Any, batch: Sequence[Any]) -> Iterator[Pieces]:
    """The model's step in the pieces that are traced. Each time the model is asked for it gets new variables of the
    same shapes, fake ones while a tracer runs; its own are put back at the end."""
    import keras

    with keras.device("cpu"):  # forecasts need no GPU, where one is
        _build(model, batch)
        variables = list({id(each): each for each in _variables(model)}.values())
        own = [tensor_of(each) for each in variables]
        small = [value.tolist() if value.numel() <= _KEPT else None for value in own]
        steps = getattr(_inner(model.optimizer), "gradient_accumulation_steps", None) or 1

        def renew_model() -> torch.nn.Module:
            for variable, value, numbers in zip(variables, own, small, strict=True):
                new = torch.zeros(value.shape, dtype=value.dtype) if numbers is None else _tensor(numbers, value.dtype)
                replace_tensor(variable, torch.nn.Parameter(new, requires_grad=value.requires_grad))
            # The second step is the one to forecast: it is to be the one that updates.
            iterations = step_count_of(_inner(model.optimizer))
            replace_tensor(iterations, torch.nn.Parameter(_tensor(max(0, steps - 2), own_type(iterations)), False))
            _track(model)
            return _Trained(model)

        def own_type(variable: Any) -> torch.dtype:
            return next(value.dtype for each, value in zip(variables, own, strict=True) if each is variable)

        try:
            yield Pieces(
                renew_model,
                lambda: keras.tree.map_structure(_fill_part, tuple(batch)),
                None,
                lambda parameters: _State(model, parameters),
                lambda trained, data, optimizer: model.train_step(data),
            )
        finally:
            for variable, value in zip(variables, own, strict=True):
                replace_tensor(variable, value)
            _track(model)


class _Trained(torch.nn.Module):  # type: ignore[misc]  # mypy does not follow torch
    """The model's layers by their paths, each with the weights that are its own. Keras (3.15) keeps layers in lists,
    where PyTorch does not look, and every weight in the module of each layer around it."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        layers, taken = layers_of(model), set[int]()
        weights: dict[str, torch.nn.Module] = {}
        for path, layer in reversed(layers.items()):  # the innermost layer that holds it
            holder = weights[path] = torch.nn.Module()
            held = own_parameters(holder)
            for variable in layer.variables:
                if id(variable) not in taken:
                    taken.add(id(variable))
                    held[str(len(held))] = tensor_of(variable)
        self._named = [(path, module) for path in layers for module in (layers[path], weights[path])]

    def named_modules(self, *_: Any, **__: Any) -> Iterator[tuple[str, torch.nn.Module]]:
        yield "", self
        yield from self._named


class _State(torch.optim.Optimizer):  # type: ignore[misc]  # mypy does not follow torch
    """The variables of Keras's optimizer as PyTorch would have them: by the weight they are for."""

    def __init__(self, model: Any, parameters: Any) -> None:
        super().__init__(list(parameters), {})
        weights = {each.path.replace("/", "_"): tensor_of(each) for each in model.trainable_variables}
        for variable in model.optimizer.variables:
            inner = variable.path.partition("/")[2]
            weight = next((value for path, value in weights.items() if inner.startswith(path)), tensor_of(variable))
            self.state[weight][variable.path] = tensor_of(variable)


def _build(model: Any, batch: Sequence[Any]) -> None:
    """Makes the variables of the model, its metrics and its optimizer, as the first call of fit would."""
    import keras

    build_on_shapes(model, keras.tree.map_structure(_symbolic, tuple(batch)))
    if not model.trainable_variables:
        raise InputError("the Keras model has no weight to train: every layer is frozen; set trainable=True on some")
    if not model.optimizer.built:
        model.optimizer.build(model.trainable_variables)


def _variables(model: Any) -> Iterator[Any]:
    yield from model.variables
    yield from model.optimizer.variables
    yield from model.metrics_variables


def _inner(optimizer: Any) -> Any:
    return getattr(optimizer, "inner_optimizer", optimizer)


def _track(model: Any) -> None:
    """Modules list the values that variables have now: zero_grad goes by that list."""
    for layer in layers_of(model).values():
        track_tensors(layer)


def _symbolic(part: Any) -> Any:
    import keras

    return keras.KerasTensor(tuple(part.shape), dtype=keras.backend.standardize_dtype(part.dtype))


def _fill_part(part: Any) -> torch.Tensor:
    """Images at random; numbers of classes are 0, which every model has."""
    dtype = torch_dtype_of(part.dtype)
    return torch.rand(part.shape, dtype=dtype) if dtype.is_floating_point else torch.zeros(part.shape, dtype=dtype)


def _tensor(numbers: Any, dtype: torch.dtype) -> torch.Tensor:
    return torch.tensor(numbers, dtype=dtype)
