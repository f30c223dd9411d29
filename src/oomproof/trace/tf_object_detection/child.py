"""The child process: ``python -P -m oomproof.trace.tf_object_detection.child FOLDER``. Traces one step of the API.

Its own process, because the API needs Keras 2 under the name ``keras``, and because its models of TensorFlow 1 switch
TensorFlow itself to another mode. FOLDER holds ``request.json``; the child leaves ``step.timeline`` and ``work.npz``
there, or ``error.json``. What it is at goes to ``progress.txt``, a line each. With ``--graphs-only`` it leaves the
step's graphs instead, for a child that needs them (many_images.py).
"""

from __future__ import annotations

import gc
import json
import os
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from oomproof.memory.about import About
from oomproof.memory.files import timeline_file
from oomproof.memory.timeline import Timeline
from oomproof.trace.tensorflow.graph.repeat import NotAlike
from oomproof.trace.tensorflow.trace_step import PreparedStep, prepare_step, timeline_of
from oomproof.trace.tf_object_detection import many_images
from oomproof.trace.tf_object_detection.build import build_step
from oomproof.trace.tf_object_detection.built import BuiltStep
from oomproof.trace.tf_object_detection.request import ERROR, PROGRESS, REQUEST, TIMELINE, WORK, StepRequest
from oomproof.trace.xla.parent import end_with_parent


def main(folder: Path, *, graphs_only: bool = False) -> int:
    gc.disable()  # a graph is a million objects that stay; looking through them again and again takes seconds
    warnings.simplefilter("ignore")  # of code from 2022, about which a user can do nothing here
    try:
        request = StepRequest(**json.loads((folder / REQUEST).read_text()))
        if graphs_only:
            many_images.write_graphs(build_and_prepare(request)[1], folder)
            return 0
        timeline = trace(request, folder)
    except NotAlike:
        # A process can build the API's step once; this one begins anew, for all images.
        (folder / REQUEST).write_text(json.dumps(replace(request, many_images="build").as_json()))
        os.execv(sys.executable, [sys.executable, "-P", "-m", __spec__.name, str(folder)])
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

        if many_images.follow_from_few(request):
            with many_images.graphs_of_fewer(request, folder) as fewer:
                built, step = build_and_prepare(many_images.with_images(request, many_images.MORE), progress)
                progress(f"waiting for the step with {many_images.FEW} images")
                step = many_images.with_all_images(fewer(), step, request)
        else:
            built, step = build_and_prepare(request, progress)
        timeline = timeline_of(
            step,
            request.dialect,
            about=About(notes=many_images.notes_of(request)),
            may_fork=True,
            progress=progress,
        )
        about: dict[str, Any] = {
            "optimizer": built.optimizer,
            "batchnorms": built.batchnorms,
            "precision": "float16" if request.half else "float32",
        }
        return replace(timeline, about=replace(timeline.about, **about))


def build_and_prepare(
    request: StepRequest, progress: Callable[[str], None] = lambda text: None
) -> tuple[BuiltStep, PreparedStep]:
    images = f"{request.batch} image{'s' * (request.batch > 1)}"
    progress(f"building the API's own model for TensorFlow {request.tensorflow}, with {images}")
    built = build_step(request)
    step = prepare_step(
        built.captured,
        names=built.names,
        dialect=request.dialect,
        capability=request.capability,
        may_fork=True,
        progress=progress,
    )
    return built, step


if __name__ == "__main__":
    end_with_parent(Path(sys.argv[1]))
    code = main(Path(sys.argv[1]), graphs_only=many_images.GRAPHS_ONLY in sys.argv[2:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # TensorFlow takes seconds to tear down what nobody needs any more
