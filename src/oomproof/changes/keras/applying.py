"""Applies a plan to a compiled Keras model."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from oomproof.changes.keras.cloning import clone_model
from oomproof.changes.keras.recompile import accumulation, compile_as, make_optimizer
from oomproof.changes.keras.recompute import NONE, blocks_recomputed, names_in, recompute
from oomproof.changes.keras.slim import narrower
from oomproof.changes.settings_file import read_settings_and_own
from oomproof.errors import CannotDo, InputError

PRECISIONS = ("own", "float32", "mixed_float16", "mixed_bfloat16")


def apply(model: Any, settings: Any) -> Any:
    """The model with what ``settings`` (a Plan, a dict, or a file of ``oomproof fit --write``) change, compiled as
    before but for jit_compile, which is False unless the plan was made for XLA.

    Another precision, width or image size makes a copy, which takes over the weights of all layers that keep their
    shapes. Other changes are made to the model itself, which is compiled anew.
    """
    chosen = settings_from(settings)
    _refuse_undone_blocks(chosen)
    copy = change_model(model, chosen)
    if "checkpoint" in chosen:
        recompute(copy, str(chosen["checkpoint"]))
    name, steps, xla = chosen.get("optimizer", "own"), chosen.get("accumulate"), chosen.get("jit_compile") == "true"
    return compile_as(copy, model, optimizer=name, accumulate=steps, jit_compile=xla)


def settings_from(settings: Any, *, with_own: bool = False) -> Mapping[str, Any]:
    """The settings of a plan, a file or a dict. Those that are parameters of the user's own code are theirs to set."""
    own: tuple[str, ...] = getattr(settings, "own", ())
    given = getattr(settings, "settings", settings)
    if isinstance(settings, (str, Path)):
        given, own = read_settings_and_own(settings)
    if not isinstance(given, Mapping):
        raise InputError(
            "expected a Plan of oomproof.fit, a settings file, or a dict of settings such as {'accumulate': 4}; got a "
            f"{type(settings).__name__}"
        )
    return given if with_own else {name: value for name, value in given.items() if name not in own}


def change_model(model: Any, settings: Mapping[str, Any], *, weights: bool = True) -> Any:
    """The model as the settings build it, not compiled; itself where they change nothing of it."""
    policy = str(settings.get("precision", "own"))
    if policy not in PRECISIONS:
        raise InputError(f"precision must be one of {', '.join(PRECISIONS)}; got '{policy}'")
    policy = "" if policy in ("own", model.dtype_policy.name) else policy
    width, size, present = float(settings.get("width", 1.0)), settings.get("image_size"), find_image_size(model)
    result = model
    if width != 1.0:
        result = narrower(result, width, policy=policy, weights=weights)
    elif policy:
        result = clone_model(result, f"precision={policy}", policy=policy, weights=weights)
    if size is not None and present is not None and tuple(size) != present:
        sides = (int(size[0]), int(size[1]))
        what = f"image_size={sides[0]}x{sides[1]}"
        result = clone_model(result, what, policy=result.dtype_policy.name, image_size=sides, weights=weights)
    return result


def find_image_size(model: Any) -> tuple[int, int] | None:
    """Height and width that the model is built for, where it has one input of images of a fixed size."""
    inputs = list(getattr(model, "inputs", None) or [])
    if len(inputs) != 1 or len(inputs[0].shape) != 4 or None in inputs[0].shape[1:3]:
        return None
    height, width = inputs[0].shape[1:3]
    return int(height), int(width)


@contextlib.contextmanager
def compiled_for(model: Any, settings: Mapping[str, Any]) -> Iterator[Any]:
    """The model as a plan would train it, for as long as it is looked at; the model that was given is not changed.
    Weights of a copy have no meaning."""
    _refuse_undone_blocks(settings)
    copy = change_model(model, settings, weights=False)
    with blocks_recomputed(copy, str(settings.get("checkpoint", NONE))):
        yield from _compile_copy(copy, model, settings)


def _refuse_undone_blocks(settings: Mapping[str, Any]) -> None:
    """XLA sees that a block is computed twice, and may keep the first result after all."""
    again = str(settings.get("checkpoint", NONE))
    if names_in(again) and str(settings.get("jit_compile")) == "true":
        raise CannotDo(
            f"checkpoint={again} and jit_compile=true do not go together, since XLA may undo recomputation: expected "
            "checkpoint=none or jit_compile=false"
        )


def _compile_copy(copy: Any, model: Any, settings: Mapping[str, Any]) -> Iterator[Any]:
    name, steps = str(settings.get("optimizer", "own")), settings.get("accumulate")
    if copy is not model:
        yield compile_as(copy, model, optimizer=name, accumulate=steps)
        return
    if name == "own" and steps in (None, accumulation(model)):
        yield model
        return
    before = model.optimizer
    model.optimizer = _wrap_in_scaling(before, make_optimizer(model, name, steps))
    try:
        yield model
    finally:
        model.optimizer = before


def _wrap_in_scaling(before: Any, new: Any) -> Any:
    """With loss scaling around it where there was some."""
    return type(before)(new) if hasattr(before, "inner_optimizer") else new
