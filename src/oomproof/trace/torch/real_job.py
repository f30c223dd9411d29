"""What of a job is run for real, and where."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from oomproof.changes.torch.training import OPTIMIZERS, Training, training_from
from oomproof.trace.torch.loop import Pieces


def pieces_and_training(job: Any, settings: Mapping[str, Any]) -> tuple[Pieces, Training]:
    """``job`` has a TorchJob's functions."""
    pieces = Pieces(job.model, job.batch, job.loss, job.optimizer or OPTIMIZERS["sgd"], job.step)
    return pieces, training_from(settings)


def real_device() -> tuple[str, torch.device]:
    """(its name, the device): the GPU that PyTorch uses here, or the CPU."""
    if torch.cuda.is_available():
        return torch.cuda.get_device_name(), torch.device("cuda", torch.cuda.current_device())
    return "cpu", torch.device("cpu")
