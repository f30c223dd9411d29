"""What the child is asked for, as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class StepRequest:
    text: str
    """the pipeline.config, with the settings in it"""
    tensorflow: Literal[1, 2]
    """1: graphs of slim; 2: Keras models"""
    height: int
    width: int
    """of the images after resizing and padding"""
    batch: int
    """images of one replica"""
    boxes: int = 0
    """objects in every image; 0: not known, no more than the padding has room for"""
    capability: str = "8.0"
    dialect: Literal["cuda", "cpu"] = "cuda"

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


REQUEST, TIMELINE, WORK, ERROR, PROGRESS = "request.json", "step.timeline", "work.npz", "error.json", "progress.txt"
"""files in the folder that parent and child share"""
