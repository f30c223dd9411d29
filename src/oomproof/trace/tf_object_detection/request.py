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
    boxes: tuple[int, ...] = ()
    """objects of each image; none: not known, no more than the padding has room for"""
    capability: str = "8.0"
    dialect: Literal["cuda", "cpu"] = "cuda"
    run: bool = False
    """the step of `oomproof run` (changes/tf_object_detection), not the API's own; of its micro-batches, one"""
    accumulate: int = 1
    half: bool = False
    recompute: bool = False
    evaluation: bool = False
    """a step of evaluation, not of training"""
    many_images: Literal["build", "repeat", "extend"] = "build"
    """how a step with many images comes about (many_images.py). It is built with all of them; or follows from steps
    with few: what is there once for an image is repeated, or, where images go through the step together, extended"""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


REQUEST, TIMELINE, WORK, ERROR, PROGRESS = "request.json", "step.timeline", "work.npz", "error.json", "progress.txt"
"""files in the folder that parent and child share"""
