"""How long a side can get that the data decides on, by operation; and how long it is taken to be.

The bound follows from what goes in: a mask leaves over no more than it is applied to. What to expect is a part of the
bound, the same for every mask (``share``). A limit that the step itself sets (NMS) is taken to be reached, as it is by
a detector that has learnt something.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from oomproof.memory.scratch.recurrent import KEPT, reserve_bytes
from oomproof.memory.scratch.recurrent import TF_FORWARD as RNN

Bound = list[int]
_GROWS = """
    Pad PadV2 MirrorPad Tile Fill Range BroadcastTo Empty ScatterNd SegmentSum SegmentMean SegmentMax UnsortedSegmentSum
    UnsortedSegmentMax UnsortedSegmentMean RandomUniform RandomStandardNormal TruncatedNormal RandomUniformInt
    StatelessRandomUniformV2 StatelessRandomNormalV2 StatelessRandomUniform StatelessRandomNormal Bincount DenseBincount
    TensorListStack TensorListConcat TensorListConcatV2 TensorListGather RaggedRange RaggedTensorToTensor LinSpace
    PyFunc EagerPyFunc SparseToDense OneHot MatrixDiagV3 ResizeBilinear ResizeNearestNeighbor DecodeRaw Placeholder
"""
GROWS = frozenset(_GROWS.split())
"""may make more than goes in, as much as the values say"""
RESERVES = {"FusedBatchNormV3": (5,), "_FusedBatchNormEx": (5,), RNN: (3, 4)}
"""which results are what cuDNN keeps for the backward pass. They have no shape before the step runs, and no data decide
on them: see ``bound_reserves``"""
_BITS = 32
"""of an element of that result"""


@dataclass(frozen=True)
class Case:
    """One result with an unknown side. Sides of inputs are all known, or are numbers from here."""

    tf: Any
    inputs: Sequence[Any]
    result: Any
    results: int
    """how many results the operation has"""
    share: float
    room: int | None = None
    """elements of the list that is the first input"""

    def some(self, most: int) -> int:
        return math.ceil(most * self.share)

    def shape(self, place: int) -> list[int]:
        return sides_of(self.inputs[place])

    def value(self, place: int) -> Any:
        return self.tf.get_static_value(self.inputs[place])


def bound_sides(op: str, case: Case) -> Bound | None:
    """A number for every side; None where no rule is known."""
    rule = RULES.get(op)
    if rule is None and op.startswith("NonMaxSuppression"):
        rule = _bound_kept_boxes
    return None if rule is None else rule(case)


def from_inputs(inputs: Sequence[Any], result: Any) -> Bound:
    """Where no rule is known: sides as long as those of inputs with as many sides, else as many elements as the largest
    input has."""
    shapes = [sides_of(each) for each in inputs]
    if result.shape.rank is None:
        return max(shapes, key=math.prod, default=[])
    known = result.shape.as_list()
    alike = [shape for shape in shapes if len(shape) == len(known)]
    if not alike:
        return _spread(known, max((math.prod(shape) for shape in shapes), default=1))
    longest = [max(each) for each in zip(*alike, strict=True)]
    return [long if side is None else side for side, long in zip(known, longest, strict=True)]


def bound_reserves(
    op: str, first: Sequence[int], share: float, attrs: Mapping[str, Any], states: Sequence[int]
) -> tuple[tuple[int, ...], ...]:
    """The shapes of what an operation of RESERVES keeps; ``first`` is that of its first result, ``states`` that of the
    second."""
    if op == RNN:
        return (_bound_rnn_reserve(first, attrs, states), ())
    return (_bound_norm_reserve(first, share),)


def _bound_rnn_reserve(output: Sequence[int], attrs: Mapping[str, Any], states: Sequence[int]) -> tuple[int, ...]:
    """In numbers. A state has all layers and directions on one side, the first where time comes first in the output;
    what runs both ways puts its two results side by side."""
    layers, hidden = states[0] if attrs["time_major"].b else states[1], states[-1]
    directions = 2 if attrs["direction"].s == b"bidirectional" else 1
    mode = attrs["rnn_mode"].s.decode()
    numbers = math.prod(output[:-1]) * directions * hidden
    cell = mode if mode in KEPT else "rnn"
    return (reserve_bytes(cell, layers=max(1, layers // directions), numbers=numbers, item=1),)


def _bound_norm_reserve(normalised: Sequence[int], share: float) -> tuple[int, ...]:
    """What fused batch normalisation keeps for its gradient beside mean and variance: one number on a CPU (TensorFlow
    2.21), and on a GPU in cuDNN's plain spatial mode, which TensorFlow asks for. In its persistent mode with an
    activation (TF_USE_CUDNN_BATCHNORM_SPATIAL_PERSISTENT, half precision) cuDNN keeps a bit for every element: that is
    the most, 1/32 of the input, and goes into the upper figure."""
    return () if share < 1 else (-(-math.prod(normalised) // _BITS),)


def sides_of(tensor: Any) -> list[int]:
    """A handle or a list has no sides."""
    if tensor.shape.rank is None or not tensor.shape.is_fully_defined():
        return []
    return list(tensor.shape.as_list())


def _spread(known: Sequence[int | None], elements: int) -> Bound:
    """All elements in the first side that is unknown."""
    rest = math.prod(side for side in known if side is not None)
    sides: Bound = []
    for side in known:
        if side is None:
            sides.append(-(-elements // max(1, rest)) if elements else 0)
            elements = rest = 1
        else:
            sides.append(side)
    return sides


def _where(case: Case) -> Bound:
    shape = case.shape(0)
    return [case.some(math.prod(shape)), len(shape)]


def _bound_kept_boxes(case: Case) -> Bound:
    boxes, limit = case.shape(0)[0], case.value(2)
    kept = boxes if limit is None else min(boxes, max(0, int(limit)))
    return [kept] * (case.result.shape.rank or 1)


def _of_a_row(case: Case) -> Bound:
    """Unique, set differences: a part of the first input."""
    return [case.some(side) if known is None else known for side, known in _beside(case)]


def _cut(case: Case) -> Bound | None:
    """A slice whose ends are not known."""
    if case.result.shape.rank != len(case.shape(0)):
        return None
    return [case.some(side) if known is None else known for side, known in _beside(case)]


def _beside(case: Case) -> list[tuple[int, int | None]]:
    shape = case.shape(0)
    known = case.result.shape.as_list() if case.result.shape.rank is not None else [None] * len(shape)
    return list(zip(shape, known, strict=False))


def _largest_values(case: Case) -> Bound:
    *before, last = case.shape(0)
    return [*before, case.some(last)]


def _parts(case: Case) -> Bound:
    """Each part may get every row; together they have them once."""
    data, rows = case.shape(0), case.shape(1)
    count = math.prod(rows)
    return [count if case.share >= 1 else -(-count // case.results), *data[len(rows) :]]


def _bound_stitch(case: Case) -> Bound:
    half = len(case.inputs) // 2
    rows = [case.shape(place) for place in range(half)]
    return [sum(math.prod(each) for each in rows), *case.shape(half)[len(rows[0]) :]]


def _bound_reshape(case: Case) -> Bound:
    known = case.result.shape.as_list() if case.result.shape.rank is not None else [None]
    return _spread(known, math.prod(case.shape(0)))


def _bound_merge(case: Case) -> Bound:
    """Of two ways, the larger; the second result says which it was."""
    return max((case.shape(place) for place in range(len(case.inputs))), key=math.prod)


def _bound_stack(case: Case) -> Bound | None:
    if case.room is None:
        return None
    each = case.value(1)
    shape = (
        case.result.shape.as_list()[1:]
        if case.result.shape.rank is not None
        else list(each if each is not None else ())
    )
    return [case.room, *(1 if side is None or side < 0 else int(side) for side in shape)]


def _axes(case: Case) -> Bound:
    return [max(math.prod(case.shape(0)), math.prod(case.shape(1)))]


RULES: dict[str, Callable[[Case], Bound | None]] = {
    "Where": _where,
    "Unique": _of_a_row,
    "UniqueV2": _of_a_row,
    "UniqueWithCounts": _of_a_row,
    "UniqueWithCountsV2": _of_a_row,
    "ListDiff": _of_a_row,
    "Slice": _cut,
    "StridedSlice": _cut,
    "TopKV2": _largest_values,
    "DynamicPartition": _parts,
    "DynamicStitch": _bound_stitch,
    "ParallelDynamicStitch": _bound_stitch,
    "Reshape": _bound_reshape,
    "Merge": _bound_merge,
    "TensorListStack": _bound_stack,
    "BroadcastGradientArgs": _axes,
}
