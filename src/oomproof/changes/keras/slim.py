"""Fewer filters and units: the same architecture as a narrower copy of a Keras model."""

from __future__ import annotations

from typing import Any

from oomproof.changes.keras.cloning import clone_model
from oomproof.changes.keras.recompile import compile_as
from oomproof.changes.keras.widths import widths_of
from oomproof.errors import CannotDo, InputError


def slim(model: Any, factor: float, *, weights: bool = True) -> Any:
    """A copy with about ``factor`` of the filters and units of every layer whose width is its own; what the model
    returns keeps its size. Compiled as the model is. Its weights are new but where a layer has not changed."""
    if not 0 < factor <= 1:
        raise InputError(f"width={factor}: expected the part of the channels that stays, above 0 and up to 1, as 0.5")
    if factor == 1:
        return model
    copy = narrower(model, factor, weights=weights)
    return compile_as(copy, model) if model.compiled else copy


def narrower(model: Any, factor: float, *, policy: str = "", weights: bool = True) -> Any:
    """The copy, not compiled; under another dtype policy, where one is named."""
    widths = widths_of(model)
    if not widths.changeable:
        raise CannotDo(f"width={factor}: the model has no inner convolution or Dense layer that may be narrower")
    return clone_model(
        model,
        f"width={factor}",
        change=lambda layer: widths.config(layer, factor),
        policy=policy,
        weights=weights,
    )
