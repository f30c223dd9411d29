"""Which way a Keras step runs on a GPU: compiled by XLA, which is Keras's default there, or operation by operation."""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from oomproof.errors import CannotDo, InputError
from oomproof.frameworks.keras import all_layers, goes_to_cudnn, is_distributed
from oomproof.memory.cards.devices import Device
from oomproof.trace.xla.installed import INSTALL, is_xla_installed, require_xla
from oomproof.trace.xla.targets import Target, target_for

CHOICES = ("own", "true", "false")
HELP = (
    "compile(jit_compile=...): true is XLA, which needs oomproof[xla]; own is what Keras would do on a GPU (plans "
    "start from false)"
)
_asked: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
"""what compile() was given, where it could be seen: Keras keeps what it made of it on this machine"""

_PLAIN = "for compile(jit_compile=False): operations run one by one"
_WITHOUT = (
    f'{_PLAIN}. On a GPU Keras would compile this step with XLA (jit_compile="auto"): another compiler then plans the '
    f"memory, which may be more or less. {INSTALL} forecasts that, without a GPU; compile(jit_compile=False) avoids it"
)
_UNSAID = (
    ". Whether compile() said jit_compile=False cannot be told on a machine without a GPU; --set jit_compile=false "
    "forecasts that"
)


@dataclass(frozen=True)
class XlaChoice:
    target: Target | None
    """the GPU to compile for; None: the step is not compiled by XLA"""
    notes: tuple[str, ...]


def way_of(model: Any, settings: Mapping[str, Any], device: Device | None) -> XlaChoice:
    """How the step is forecast for a device. ``model`` is as the user has compiled it."""
    backend, wanted = settings.get("backend", "tensorflow"), settings.get("jit_compile", "own")
    if backend == "jax":
        if wanted == "false" or getattr(model, "run_eagerly", False):
            raise InputError(
                "Keras on JAX is forecast as XLA compiles it; what runs operation by operation is not followed: leave "
                "jit_compile as it is, and compile without run_eagerly"
            )
        require_xla("a forecast of Keras on JAX")
        return _choose_xla("Keras on JAX compiles the step with XLA", device)
    if wanted == "true":
        require_xla("jit_compile=true")
        if (layer := _in_cudnn(model)) is not None:
            raise CannotDo(
                f"jit_compile=true: on a GPU, cuDNN computes the layer {layer.name}, and Keras leaves XLA out for the "
                "whole step; leave jit_compile as it is, or give the layer use_cudnn=False"
            )
        return _choose_xla("jit_compile=true", device)
    if wanted == "false":
        return XlaChoice(
            None, (f"{_PLAIN}, as the setting jit_compile=false has it, and as a plan's apply() compiles",)
        )
    because, unsaid = _why_not(model)
    if (again := str(settings.get("checkpoint", "none"))) != "none":
        because = f"XLA may undo checkpoint={again}, so a plan's apply() compiles without it"
    if because:
        return XlaChoice(None, (f"{_PLAIN}: {because}",))
    if device is None or not is_xla_installed():
        return XlaChoice(None, (_WITHOUT + (_UNSAID if unsaid else ""),))
    return _choose_xla("Keras compiles the step with XLA on a GPU", device, _UNSAID if unsaid else "")


def remember_compile() -> None:
    """From now on, notes what models are given as jit_compile. Does nothing where Keras is not loaded."""
    model = getattr(sys.modules.get("keras"), "Model", None)
    home = next((each for each in getattr(model, "__mro__", ()) if "compile" in vars(each)), None)
    if home is None or hasattr(home.compile, "remembers"):
        return
    compile_model = home.compile

    @functools.wraps(compile_model)
    def compile_and_remember(self: Any, *args: Any, **given: Any) -> Any:
        _asked[self] = given.get("jit_compile", "auto")
        return compile_model(self, *args, **given)

    compile_and_remember.remembers = True  # type: ignore[attr-defined]  # a mark on a function, so that it is wrapped once
    home.compile = compile_and_remember


def as_switch(value: Any) -> str:
    """``jit_compile`` as a text or as Python has it."""
    text = {"auto": "own"}.get(str(value).lower(), str(value).lower())
    if text not in CHOICES:
        raise InputError(f"jit_compile must be one of {', '.join(CHOICES)}; got '{value}'")
    return text


def _choose_xla(because: str, device: Device | None, more: str = "") -> XlaChoice:
    target = target_for(device)
    note = (
        f"for XLA: {because}. The real XLA compiler planned the memory for the {target.gpu}; that plan was never held "
        f"against a GPU{more}"
    )
    return XlaChoice(target, (note, target.note) if target.note else (note,))


def _in_cudnn(model: Any) -> Any:
    """The first layer that Keras on TensorFlow hands to cuDNN on a GPU, or None."""
    return next((layer for layer in all_layers(model) if goes_to_cudnn(layer)), None)


def _why_not(model: Any) -> tuple[str, bool]:
    """Why Keras would not compile with XLA on a GPU, empty where it would; and whether compile()'s word is missing.
    The rules are those of Keras 3.15: Trainer.compile, model_supports_jit."""
    from oomproof.frameworks.tensorflow import is_op_determinism_enabled

    if getattr(model, "run_eagerly", False):
        return "the model is compiled with run_eagerly=True", False
    if _asked.get(model) is False:
        return "compile() says so", False
    without = next((layer for layer in all_layers(model) if not layer.supports_jit or goes_to_cudnn(layer)), None)
    if without is not None:
        where = "" if not without.supports_jit else " on a GPU, where cuDNN computes it"
        return f"the layer {without.name} does not support XLA{where}", False
    if is_distributed(model):
        return "Keras does not compile with XLA under a tf.distribute strategy", False
    if is_op_determinism_enabled():
        return "Keras does not compile with XLA where op determinism is on", False
    return "", model not in _asked and not model.jit_compile
