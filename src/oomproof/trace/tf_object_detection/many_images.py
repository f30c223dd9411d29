"""Steps with many images follow from steps with few, which are built much sooner.

The API builds a part of its graph once for every image: 512 images took three minutes. So two small steps are built,
each in a process of its own, and every size of the large one follows from both (tensorflow/graph/more_images.py).
docs/tf_object_detection.md has how close that is to the step that the API builds with all images.

Where images go through the step together, what is there once for an image is extended: a node stands for several.
Not where regions are drawn: that happens image after image, so that the network gets the further meanwhile the more
images there are, and holds more (Mask R-CNN with 16 images came out 20 % too low). Nor where most of what a step makes
is made for one image at a time, and given back before the next: a CenterNet with keypoints came out 76 % too high.
There the part of an image is repeated (tensorflow/graph/repeat.py), and only where parts differ the step is built with
all images.
"""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from oomproof.trace.tensorflow.beside import Beside
from oomproof.trace.tensorflow.graph.graph import Graph
from oomproof.trace.tensorflow.graph.more_images import Extrapolation, with_more_images
from oomproof.trace.tensorflow.graph.repeat import repeat_parts
from oomproof.trace.tensorflow.roles import Roles, roles_of_copies
from oomproof.trace.tensorflow.trace_step import PreparedStep
from oomproof.trace.tf_object_detection.request import ERROR, REQUEST, StepRequest

FEW, MORE = 2, 4
"""images of the two steps"""
MANY = 8
"""images from which on it is quicker to build the two"""
DEEPER = MORE - FEW
"""nodes by which the longest way through the graph may grow; in SSD and CenterNet by one, in Mask R-CNN by 62"""
EACH_ITS_OWN = 0.3
"""of the bytes of all results, those of every image by itself: SSD 0.04 to 0.11, CenterNet 0.19, with keypoints 0.79"""
GRAPHS_ONLY = "--graphs-only"
_GRAPHS = "graphs.pickle"


@dataclass(frozen=True)
class Graphs:
    """A PreparedStep's, without what belongs to its process."""

    graph: Graph
    largest: Graph | None
    smallest: Graph | None
    guessed: int


def follow_from_few(request: StepRequest) -> bool:
    """Only where the images are alike: two steps do not show what one crowded image does."""
    return request.many_images != "build" and request.batch > MANY and len(set(request.boxes)) <= 1


def with_images(request: StepRequest, images: int) -> StepRequest:
    return replace(request, batch=images, boxes=request.boxes[:images])


def notes_of(request: StepRequest) -> tuple[str, ...]:
    if not follow_from_few(request):
        return ()
    return (f"what {request.batch} images take follows from steps that the API built with {FEW} and with {MORE}",)


def write_graphs(step: PreparedStep, folder: Path) -> None:
    largest, smallest = (each.graph if each else None for each in (step.largest, step.smallest))
    (folder / _GRAPHS).write_bytes(pickle.dumps(Graphs(step.graph, largest, smallest, step.guessed)))


@contextmanager
def graphs_of_fewer(request: StepRequest, folder: Path) -> Iterator[Callable[[], Graphs]]:
    """Starts the process that builds the smaller step; what is handed out waits for its answer."""
    inner = folder / "fewer"
    inner.mkdir()
    (inner / REQUEST).write_text(json.dumps(with_images(request, FEW).as_json()))
    command = [sys.executable, "-P", "-m", "oomproof.trace.tf_object_detection.child", str(inner), GRAPHS_ONLY]
    # Its stdin is a pipe that is never written to: it ends when this process does (xla/parent.py).
    child = subprocess.Popen(command, stdin=subprocess.PIPE)

    def wait() -> Graphs:
        child.wait()
        if (inner / ERROR).is_file():
            error = json.loads((inner / ERROR).read_text())
            raise RuntimeError(f"{error['kind']}: {error['text']}")
        if not (inner / _GRAPHS).is_file():
            raise RuntimeError(f"the process that builds it with {FEW} images ended without an answer")
        graphs = pickle.loads((inner / _GRAPHS).read_bytes())  # of our own process, in a folder of our own
        assert isinstance(graphs, Graphs)
        return graphs

    try:
        yield wait
    finally:
        if child.poll() is None:
            child.kill()
            child.wait()
        if child.stdin is not None:
            child.stdin.close()


def with_all_images(few: Graphs, more: PreparedStep, request: StepRequest) -> PreparedStep:
    """The step with all images, from those with FEW and with MORE."""
    line = Extrapolation(FEW, MORE, request.batch)
    extended = _extend(few, more, line) if request.many_images == "extend" else None
    grown = extended or _repeat(few, more, line)
    return replace(grown, guessed=line.at(few.guessed, more.guessed))


def _extend(few: Graphs, more: PreparedStep, line: Extrapolation) -> PreparedStep | None:
    """None where something goes from image to image: what meets in memory is another with more of them."""
    if more.graph.depth() - few.graph.depth() > DEEPER:
        return None

    def extend(less: Graph | None, step: PreparedStep | None) -> PreparedStep | None:
        if less is None or step is None:
            return step
        return replace(step, graph=with_more_images(less, step.graph, line))

    graph = with_more_images(few.graph, more.graph, line)
    if _share_of_single_images(graph) > EACH_ITS_OWN:
        return None
    return replace(
        more, graph=graph, largest=extend(few.largest, more.largest), smallest=extend(few.smallest, more.smallest)
    )


def _repeat(few: Graphs, more: PreparedStep, line: Extrapolation) -> PreparedStep:
    """``NotAlike`` where the parts of images differ."""

    def repeat(less: Graph | None, step: PreparedStep | None) -> tuple[Graph, Roles] | None:
        if less is None or step is None:
            return None
        made = repeat_parts(less, step.graph, line)
        return made.graph, roles_of_copies(step.roles, made.graph, made.sources)

    def put_into(step: PreparedStep | None, made: tuple[Graph, Roles] | None) -> PreparedStep | None:
        return step if step is None or made is None else replace(step, graph=made[0], roles=made[1])

    with (
        Beside(partial(repeat, few.largest, more.largest)) as largest,
        Beside(partial(repeat, few.smallest, more.smallest)) as smallest,
    ):
        whole = put_into(more, repeat(few.graph, more))
        assert whole is not None
        return replace(
            whole,
            largest=put_into(more.largest, largest.result()),
            smallest=put_into(more.smallest, smallest.result()),
        )


def _share_of_single_images(graph: Graph) -> float:
    """Of the bytes of all results: those of nodes that stand for more than one."""
    whole = sum(each.bytes for node in graph.nodes for each in node.outputs)
    return sum(each.bytes for node in graph.nodes if node.times > 1 for each in node.outputs) / max(1, whole)
