"""Stands for the process that traces the Object Detection API, where it is not installed."""

from __future__ import annotations

from typing import Any

import numpy as np

from oomproof.memory.about import About
from oomproof.memory.activity import Work
from oomproof.memory.timeline import Builder, Timeline
from oomproof.sources.tf_object_detection.config.config import config_of_text
from oomproof.trace.tf_object_detection.request import StepRequest

MIB = 1 << 20


def arithmetic(request: StepRequest, name: str, progress: Any = None) -> Timeline:
    """A step that takes 400 floats a pixel, padded masks as the API does, and 1 MiB a counted object."""
    config = config_of_text(request.text, name)
    pixels = request.batch * request.height * request.width
    masks = config.value("train_input_reader.load_instance_masks")
    padding = config.value("train_input_reader.max_number_of_boxes") if masks else 0
    step = Builder()
    step.allocate(20 * MIB, kind="parameter", owner="feature extractor", op="variable")
    for _ in range(2):
        step.enter("forward")
        given = step.allocate(4 * pixels * (3 + padding), kind="input", owner="padded ground truth", op="input")
        made = step.allocate(1600 * pixels, kind="activation", owner="feature extractor", op="Conv2D")
        matched = step.allocate(sum(request.boxes) * MIB, kind="activation", owner="losses", op="Mul")
        step.enter("backward")
        step.free(matched)
        step.free(made)
        step.enter("optimizer")
        step.free(step.allocate(MIB, kind="temporary", owner="update", op="Mul"))
        step.free(given)
    timeline = step.build(about=About(framework="tensorflow", allocator="bfc", batchnorms=3))
    one = np.array([timeline.ticks // 2])
    zero = np.zeros(1, dtype=np.int64)
    object.__setattr__(timeline, "work", Work(one, zero, zero, zero + 10**9 * request.batch, zero + 10**8, zero))
    return timeline
