"""The child process: ``python -P -m oomproof.trace.tf_object_detection.child FOLDER``. Traces one step of the API.

Its own process, because the API needs Keras 2 under the name ``keras``, and because its models of TensorFlow 1 switch
TensorFlow itself to another mode. FOLDER holds ``request.json``; the child leaves ``step.timeline`` and ``work.npz``
there, or ``error.json``. What it is at goes to ``progress.txt``, a line each.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from oomproof.memory.files import timeline_file
from oomproof.memory.timeline import Timeline
from oomproof.trace.tensorflow.trace_step import prepare_step, timeline_of
from oomproof.trace.tf_object_detection.build import build_step
from oomproof.trace.tf_object_detection.request import ERROR, PROGRESS, REQUEST, TIMELINE, WORK, StepRequest
from oomproof.trace.xla.parent import end_with_parent

MANY_IMAGES = 128
"""in a batch: the API's graph has a part for each, where ground truth is assigned; 512 took two minutes"""


def main(folder: Path) -> int:
    gc.disable()  # a graph is a million objects that stay; looking through them again and again takes seconds
    warnings.simplefilter("ignore")  # of code from 2022, about which a user can do nothing here
    try:
        timeline = trace(StepRequest(**json.loads((folder / REQUEST).read_text())), folder)
    # Whatever goes wrong here belongs on the parent's screen in one line; it has no other way to get there.
    except Exception as error:
        (folder / ERROR).write_text(json.dumps({"kind": type(error).__name__, "text": str(error)}))
        return 1
    work = timeline.work
    columns = {name: getattr(work, name) for name in ("tick", "owner", "phase", "flops", "bytes", "form")}
    with (folder / WORK).open("wb") as file:
        np.savez(file, **columns)
    timeline_file.save(timeline, folder / TIMELINE)
    return 0


def trace(request: StepRequest, folder: Path) -> Timeline:
    with (folder / PROGRESS).open("a", buffering=1) as words:

        def progress(text: str) -> None:
            words.write(f"{text}\n")

        building = f"building the API's own model for TensorFlow {request.tensorflow}"
        if request.batch >= MANY_IMAGES:
            building += f", image by image, as it does itself: {request.batch} of them take minutes"
        progress(building)
        built = build_step(request)
        step = prepare_step(
            built.captured,
            names=built.names,
            dialect=request.dialect,
            capability=request.capability,
            progress=progress,
        )
        timeline = timeline_of(step, request.dialect, progress=progress)
        about: dict[str, Any] = {
            "optimizer": built.optimizer,
            "batchnorms": built.batchnorms,
            "precision": "float16" if request.half else "float32",
        }
        return replace(timeline, about=replace(timeline.about, **about))


if __name__ == "__main__":
    end_with_parent(Path(sys.argv[1]))
    code = main(Path(sys.argv[1]))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # TensorFlow takes seconds to tear down what nobody needs any more
