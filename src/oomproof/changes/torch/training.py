"""How a step is trained: the settings that every PyTorch job has, in one place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from oomproof.frameworks.versions import TORCH

PRECISIONS = {"fp32": None, "fp16": torch.float16, "bf16": torch.bfloat16}

OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.01, momentum=0.9, weight_decay=1e-4),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=1e-4),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=1e-4),
    "adafactor": lambda parameters: _adafactor()(parameters, lr=1e-2),
    "rmsprop": lambda parameters: torch.optim.RMSprop(parameters, lr=1e-4),
}


def has_adafactor() -> bool:
    return hasattr(torch.optim, "Adafactor")


def _adafactor() -> Any:
    if not has_adafactor():
        raise TORCH.missing_error("optimizer=adafactor", oldest="2.5")
    return torch.optim.Adafactor


@dataclass(frozen=True)
class Training:
    """How a step is trained; each field is a setting of every PyTorch job (HELP says what it means)."""

    precision: str = "fp32"
    optimizer: str = "own"
    update: str = "auto"
    accumulate: int = 1
    checkpoint: str = "none"
    channels_last: bool = False
    ema: bool = False
    zero_grad: str = "before_forward"
    gradients: str = "kept"
    matching: str = "whole"
    optimizer_state: str = "device"
    freeze_batchnorm: bool = False
    width: float = 1.0


CHOICES = {
    "precision": tuple(PRECISIONS),
    "optimizer": ("own", *OPTIMIZERS),
    "update": ("auto", "foreach", "fused", "plain"),
    "zero_grad": ("before_forward", "before_backward", "keep"),
    "gradients": ("kept", "at_once"),
    "matching": ("whole", "chunked"),
    "optimizer_state": ("device", "host", "8bit"),
}

USUAL = {"optimizer": ("adamw", "sgd"), "checkpoint": ("nonreentrant",)}
"""other values that people ask about"""

HELP = {
    "precision": "fp32; fp16: autocast with GradScaler; bf16: autocast",
    "optimizer": "the job's own, or one of PyTorch's with usual arguments (sgd: momentum 0.9)",
    "update": "how the optimizer updates: auto is PyTorch's choice on a GPU (foreach)",
    "accumulate": "micro-batches, each of the job's batch size, per optimizer step",
    "checkpoint": (
        "activations that are computed again in backward: none; of all repeated blocks (nonreentrant, reentrant); or "
        "of modules by path, as in backbone.body.layer1,backbone.body.layer2:4, where :4 runs 4 images at a time"
    ),
    "channels_last": "model and 4-D inputs in channels_last memory format",
    "ema": "an exponential moving average of the weights is kept on the device",
    "zero_grad": "when old gradients are dropped; keep zeroes them in place (set_to_none=False)",
    "gradients": (
        "kept until the update; at_once: used the moment it is there, and freed: added to the momentum (sgd), or the "
        "parameter is updated in backward (others, without accumulation)"
    ),
    "matching": "anchors are matched to boxes all at once, or a part at a time (chunked; torchvision detectors)",
    "optimizer_state": (
        "where the optimizer keeps its state: device; host: in host RAM, on the device only while a parameter is "
        "updated; 8bit: on the device in a quarter of the bytes"
    ),
    "freeze_batchnorm": "batch normalisation keeps the statistics, scale and shift it has",
    "width": "part of the channels of inner layers that stays: structured pruning, needs oomproof[prune]",
}


def training_from(settings: Mapping[str, Any]) -> Training:
    """What ``settings`` say of the training; a job's other settings are left aside."""
    return replace(Training(), **{name: settings[name] for name in Training.__dataclass_fields__ if name in settings})
