"""Memory that grows because a tf.function is traced again: which calls make a new graph, and what a graph takes.

A tf.function keeps a graph for every kind of call: for each shape and type of its tensors, and for each value of its
Python arguments. Nothing is traced here: TensorFlow's own description of the arguments tells the kinds apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from oomproof.data.pipeline.warnings import show_size
from oomproof.errors import InputError
from oomproof.trace.tensorflow.graph.capture import tensorflow

PER_OPERATION = 11_800
"""bytes of host memory that each operation of a graph takes once it has run. Measured with the step of MobileNetV2
(5301 operations) in TensorFlow 2.21: 10.1 to 11.5 KiB, of which tracing takes 6.4."""
ENOUGH = 3
"""graphs from which on it is taken for growth: two may be the last, smaller batch"""


@dataclass(frozen=True)
class Retracing:
    """What some calls of a tf.function would leave behind."""

    calls: int
    graphs: int
    operations: int
    """in one graph; 0 where the function was never traced"""
    why: tuple[str, ...]

    @property
    def bytes(self) -> int:
        return self.graphs * self.operations * PER_OPERATION

    @property
    def grows(self) -> bool:
        return self.graphs >= ENOUGH

    @property
    def warning(self) -> str:
        """One line for a reader; empty where nothing grows."""
        if not self.grows:
            return ""
        size = f" of {show_size(self.operations * PER_OPERATION)} each" if self.operations else ""
        reasons = "; ".join(self.why)
        return f"memory grows: {self.calls} calls make {self.graphs} graphs{size}, which stay. {reasons}"


def count_retracing(function: Any, calls: Sequence[Sequence[Any]]) -> Retracing:
    """``function``: a tf.function; ``calls``: the arguments of some steps in a row, as the training loop gives them."""
    tensorflow()
    from oomproof.frameworks.tensorflow import relaxes_shapes, trace_type

    if not hasattr(function, "python_function"):
        raise InputError(
            f"expected a tf.function, got {type(function).__name__}; give the function that @tf.function was put on"
        )
    context = trace_type.InternalTracingContext()
    kinds = [tuple(trace_type.from_value(each, context) for each in call) for call in calls]
    graphs = len(set(kinds))
    if function.input_signature is not None:
        graphs = min(graphs, 1)
    elif relaxes_shapes(function) and not _python_values(calls):
        graphs = min(graphs, 2)
    why = tuple(_reasons(calls, kinds)) if graphs > 1 else ()
    return Retracing(len(calls), graphs, _operations(function), why)


def _reasons(calls: Sequence[Sequence[Any]], kinds: Sequence[tuple[Any, ...]]) -> list[str]:
    found = []
    for place in range(min(map(len, calls), default=0)):
        if len({kind[place] for kind in kinds}) < 2:
            continue
        values = [call[place] for call in calls]
        if any(isinstance(value, bool | int | float | str) for value in values):
            found.append(
                f"argument {place} is a Python {type(values[0]).__name__} with another value each time: pass "
                "tf.constant(...) or make it a tf.Variable"
            )
        else:
            shapes = list(dict.fromkeys(str(tuple(getattr(value, "shape", ()))) for value in values))
            found.append(
                f"argument {place} changes its shape or type ({', '.join(shapes[:3])}{', ...' if shapes[3:] else ''}): "
                "pad to one shape, or give @tf.function(input_signature=...) or reduce_retracing=True"
            )
    return found


def _python_values(calls: Sequence[Sequence[Any]]) -> bool:
    return any(isinstance(each, bool | int | float | str) for call in calls for each in call)


def _operations(function: Any) -> int:
    """Of a graph that is there already, functions that it calls not included."""
    if not function.experimental_get_tracing_count():  # asking for its graphs might trace it
        return 0
    from oomproof.frameworks.tensorflow import list_traced_graphs

    known = list_traced_graphs(function)
    return max((len(each.graph.get_operations()) for each in known), default=0)
