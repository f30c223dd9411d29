"""A step of the API that was built, and the names that its weights and inputs go by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from oomproof.trace.tensorflow.graph.capture import Captured
from oomproof.trace.tensorflow.trace_step import Names
from oomproof.trace.tf_object_detection.batch import GROUND_TRUTH, IMAGES, Shapes
from oomproof.trace.tf_object_detection.stages import parts_of, stage_of_weight

AVERAGES = "moving averages"


@dataclass(frozen=True)
class BuiltStep:
    captured: Captured
    names: Names
    features: Shapes
    labels: Shapes
    optimizer: str
    batchnorms: int
    """layers whose statistics are taken from the batch"""
    graph: Any = None
    """for TensorFlow 1: the graph, what runs and what is fed, for those who want to run it"""
    fetches: tuple[Any, ...] = ()
    feeds: tuple[Any, ...] = ()


def name_variables(model: Any, optimizer: Any = None) -> dict[int, tuple[str, str]]:
    """(kind, owner) by id() of the handle."""
    known: dict[int, tuple[str, str]] = {}
    owners: dict[str, str] = {}
    part_of = parts_of(model)
    trained = {id(each) for each in model.trainable_variables}
    for each in model.variables:
        owner = owners[each.name.split(":")[0]] = stage_of_weight(each.name, part_of.get(id(each), ""))
        known[id(each.handle)] = "parameter" if id(each) in trained else "buffer", owner
    slots = getattr(optimizer, "variables", ())
    for each in slots() if callable(slots) else slots:
        is_average = "average" in each.name.lower()
        owner = next((found for name, found in owners.items() if name in each.name), "model")
        known.setdefault(id(each.handle), ("optimizer", AVERAGES if is_average else owner))
    return known


def name_inputs(captured: Captured, shapes: tuple[Shapes, Shapes]) -> dict[str, str]:
    """Which of the arguments are images, and which ground truth: they come in the order of their names."""
    names = [*sorted(shapes[0]), *sorted(shapes[1])]
    owners = [IMAGES] * len(shapes[0]) + [GROUND_TRUTH] * len(shapes[1])
    assert len(names) == len(captured.inputs), (names, captured.inputs)
    return dict(zip(captured.inputs, owners, strict=True))
