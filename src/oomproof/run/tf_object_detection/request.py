"""What the training process is asked for, as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

REQUEST = "request.json"


@dataclass(frozen=True)
class TrainingRequest:
    text: str
    """the pipeline.config"""
    model_dir: str
    height: int
    width: int
    """of the images that the model gets"""
    steps: int
    accumulate: int = 1
    """micro-batches of an update"""
    precision: str = "float32"
    """or mixed_float16"""
    recompute: bool = False
    gpus: int = 1
    seed: int | None = None
    """None: that of the checkpoint, else 0"""
    log_every: int = 100
    save_every: int = 1000
    keep: int = 7
    """checkpoints"""
    memory_limit_mb: int = 0
    """of each GPU; 0: as much as it needs"""
    retry: bool = True
    """a step that runs out of memory is done again in more micro-batches"""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)
