"""The linear rule for a pipeline.config: with a batch of half the size, half the learning rate and twice the steps.

Goyal et al. 2017. Warm-up and decay keep their place in the training, and their number of images.
"""

from __future__ import annotations

from typing import Any

from oomproof.sources.tf_object_detection.config.config import Config

_RATES = {
    "constant_learning_rate": ("learning_rate",),
    "exponential_decay_learning_rate": ("initial_learning_rate", "burnin_learning_rate", "min_learning_rate"),
    "manual_step_learning_rate": ("initial_learning_rate",),
    "cosine_decay_learning_rate": ("learning_rate_base", "warmup_learning_rate"),
}
_STEPS = {
    "constant_learning_rate": (),
    "exponential_decay_learning_rate": ("decay_steps", "burnin_steps"),
    "manual_step_learning_rate": (),
    "cosine_decay_learning_rate": ("total_steps", "warmup_steps", "hold_base_rate_steps"),
}


def rescale_schedule(config: Config, factor: float) -> dict[str, Any]:
    """Values by path for ``factor`` times the batch. What the file leaves to a default is written out, where it is not
    zero: the default was not meant for this batch."""
    found: dict[str, Any] = {}

    def rate(path: str) -> None:
        if value := config.value(path):
            found[path] = float(f"{value * factor:.6g}")

    def steps(path: str) -> None:
        if value := config.value(path):
            found[path] = max(1, round(value / factor))

    steps("train_config.num_steps")
    optimizer = config.which("train_config.optimizer")
    start = f"train_config.optimizer.{optimizer}.learning_rate"
    kind = config.which(start) if optimizer else ""
    if kind:
        for name in _RATES[kind]:
            rate(f"{start}.{kind}.{name}")
        for name in _STEPS[kind]:
            steps(f"{start}.{kind}.{name}")
        for number in range(len(config.value(f"{start}.{kind}.schedule")) if kind.startswith("manual") else 0):
            steps(f"{start}.{kind}.schedule[{number}].step")
            rate(f"{start}.{kind}.schedule[{number}].learning_rate")
    return found
