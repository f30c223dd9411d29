"""The settings that every Keras job has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oomproof.memory.runtime import HELP as OF_THE_RUN
from oomproof.memory.runtime import OF_TENSORFLOW, Runtime
from oomproof.sources.job import ASSUMED, Setting
from oomproof.sources.keras.installed import BACKENDS, backend_now
from oomproof.sources.keras.xla import CHOICES as XLA
from oomproof.sources.keras.xla import HELP as OF_XLA
from oomproof.sources.keras.xla import as_switch

PRECISIONS = ("own", "float32", "mixed_float16", "mixed_bfloat16")
OPTIMIZERS = ("own", "sgd", "adam", "adamw", "rmsprop", "adafactor", "lion")
_USUAL = {"optimizer": ("adamw", "sgd")}
"""other values that people ask about"""
_CHOICES = {"precision": PRECISIONS, "optimizer": OPTIMIZERS, "backend": BACKENDS}
_HELP = {
    "precision": "the model's own, or one of Keras's dtype policies; mixed_float16 scales the loss",
    "optimizer": "the model's own, or one of Keras's with usual arguments (sgd: momentum 0.9)",
    "accumulate": "gradient_accumulation_steps: micro-batches, each of the batch size, per update",
    "width": "part of the filters and units of inner layers that stays: oomproof.slim",
    "checkpoint": "blocks that are computed again in backward: none, all, or by last layers: block1_add,block2_add",
    "backend": "the backend of Keras: tensorflow; torch; or jax, which needs oomproof[xla]",
}
_DEFAULTS = {"precision": "own", "optimizer": "own", "accumulate": 1, "width": 1.0}


def batch_setting(images: int, basis: str = ASSUMED) -> Setting:
    return Setting("batch", images, "images a step", basis=basis, given_as="--batch {value}")


def size_setting(sides: tuple[int, ...], basis: str = ASSUMED) -> Setting:
    text = "height x width of the images, in pixels"
    return Setting("image_size", sides, text, basis=basis, given_as="--image-size {value}")


def training_settings(defaults: Mapping[str, Any]) -> tuple[Setting, ...]:
    backend = backend_now()
    own = tuple(
        Setting(name, defaults.get(name, value), _HELP[name], _CHOICES.get(name, ()), usual=_USUAL.get(name, ()))
        for name, value in {**_DEFAULTS, "backend": backend}.items()
    )
    if backend == "torch":  # the run around it is PyTorch's
        return own
    if backend == "tensorflow":
        own = (*own, Setting("checkpoint", "none", _HELP["checkpoint"], usual=("all",)))
    plain = Runtime()
    xla = Setting("jit_compile", "own", OF_XLA, XLA, read=as_switch)
    return (*own, xla, *(Setting(name, getattr(plain, name), OF_THE_RUN[name]) for name in OF_TENSORFLOW))
