"""What each operation of a step has to do: arithmetic, bytes read and written, and how it computes.

Plans are timed by these figures. The graph is the optimized one, so what TensorFlow fuses is one operation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from dataclasses import dataclass, field, replace

import numpy as np

from oomproof.memory.activity import CONVOLUTION, DEPTHWISE, HALF, HALF_CONVOLUTION, HALF_DEPTHWISE, PLAIN, Work
from oomproof.memory.scratch.recurrent import TF_BACKWARD, TF_FORWARD
from oomproof.memory.timeline import PHASES, Timeline
from oomproof.trace.tensorflow.buffers import kernels
from oomproof.trace.tensorflow.graph.graph import Graph, Node
from oomproof.trace.tensorflow.scratch import read_convolution

_HALF = ("float16", "bfloat16")
_PRODUCTS = frozenset(
    {"MatMul", "_FusedMatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "_FusedBatchMatMulV2"}
)
_PICKS = frozenset({"GatherV2", "GatherNd", "Gather", "ResourceGather", "Slice", "StridedSlice", "TensorListGetItem"})
"""read no more of their input than they write"""
_NO_KERNEL = frozenset({"_Retval", "Merge", "RefMerge", "Enter", "Exit", "NextIteration", "LoopCond", "ControlTrigger"})


@dataclass
class Workbook:
    """The operations of a step as they come."""

    only_for_update: Set[int] = frozenset()
    """id() of nodes that count as part of the update, although no gradient is needed for them"""
    rows: list[tuple[int, str, int, int, int, int]] = field(default_factory=list)

    def note(self, tick: int, owner: str, phase: str, graph: Graph, node: Node) -> None:
        """Writes an operation down, where it launches a kernel."""
        if (work := work_of(graph, node)) is not None:
            phase = "optimizer" if id(node) in self.only_for_update else phase
            flops, nbytes, form = work
            row = tick, owner, PHASES.index(phase), flops // node.times, nbytes // node.times, form
            self.rows.extend([row] * node.times)

    def put_into(self, timeline: Timeline) -> Timeline:
        """The Timeline with this work; owners that hold no memory join it."""
        number = {owner: place for place, owner in enumerate(timeline.owners)}
        rows = [(tick, number.setdefault(owner, len(number)), *rest) for tick, owner, *rest in self.rows]
        columns = np.array(rows, dtype=np.int64).reshape(-1, 6).T
        return replace(timeline, owners=tuple(number), work=Work(*columns))


def only_for_update(graph: Graph, phases: Sequence[str]) -> frozenset[int]:
    """id() of nodes that nothing but the update reads: a learning rate, powers of Adam's betas. They may run before
    there is a gradient, as the forward pass does; but of an accumulated step, only the last micro-batch runs them."""
    found: set[int] = set()
    users, returned = graph.users(), {number for number, _ in graph.results}
    for number in range(len(graph.nodes) - 1, -1, -1):
        if number in returned:
            returned.update(source for source, _ in graph.nodes[number].inputs)
            continue
        reads = users[number] if phases[number] == "forward" else []
        if reads and all(phases[user] == "optimizer" or user in found for user in reads):
            found.add(number)
    return frozenset(id(graph.nodes[number]) for number in found)


def work_of(graph: Graph, node: Node) -> tuple[int, int, int] | None:
    """(flops, bytes, form); None for what launches nothing: names for other tensors, handles, shapes on the host."""
    if not _launches(graph, node):
        return None
    read = sum(graph.output(ref).bytes for ref in node.inputs)
    written = sum(output.bytes for output in node.outputs)
    if node.op in _PICKS:
        read = min(read, written)
    if node.op in kernels.VARIABLE_UPDATES:  # variables are read and written, and are not tensors of the graph
        written += 2 * read * sum(graph.output(ref).dtype == "resource" for ref in node.inputs)
    flops = _flops(graph, node)
    if not flops:
        return 0, read + written, PLAIN
    return flops, read + written, _form(node)


def _form(node: Node) -> int:
    half = node.outputs[0].dtype in _HALF
    if node.op.startswith(("Depthwise", "_FusedDepthwise")):
        return HALF_DEPTHWISE if half else DEPTHWISE
    if half:
        return HALF_CONVOLUTION if "Conv" in node.op else HALF
    return CONVOLUTION  # TensorFlow lets matrix products use TF32 as well as convolutions, unless it is told otherwise


def _launches(graph: Graph, node: Node) -> bool:
    if node.op in kernels.VARIABLE_UPDATES:
        return True
    if node.bodies or node.op in kernels.HANDLES or node.op in _NO_KERNEL:
        return False
    if node.op in kernels.VARIABLE_READS or node.op in kernels.VARIABLE_TAKES:
        return False
    made = [index for index, output in enumerate(node.outputs) if output.bytes and not kernels.is_on_host(node, output)]
    return any(kernels.find_shared_input(graph, node, index) is None for index in made)


def _flops(graph: Graph, node: Node) -> int:
    if (shapes := read_convolution(graph, node)) is not None:
        # Every place of the output is a sum over one filter for each channel.
        return int(2 * math.prod(shapes["y"]) // max(1, shapes["y"][1]) * math.prod(shapes["w"]))
    if node.op in _PRODUCTS:
        left, out = graph.output(node.inputs[0]).shape, node.outputs[0].shape
        if len(left) < 2 or len(out) < 2:
            return 0
        summed = math.prod(left[-2:]) // max(1, out[-2])  # whichever way round the left matrix is
        return 2 * math.prod(out) * summed
    if node.op == "Einsum":
        return _einsum(graph, node)
    if node.op in (TF_FORWARD, TF_BACKWARD):
        # Each weight is used once for every sequence and time step; backward for two gradients.
        sequences, weights = graph.output(node.inputs[0]).shape, graph.output(node.inputs[3]).shape
        return (4 if node.op == TF_BACKWARD else 2) * math.prod(sequences[:-1]) * math.prod(weights)
    return 0


def _einsum(graph: Graph, node: Node) -> int:
    """A multiplication and an addition for every combination of indices; none where a single tensor is rearranged."""
    equation = node.attrs.get("equation", b"")
    given = (equation.decode() if isinstance(equation, bytes) else str(equation)).partition("->")[0].split(",")
    if len(node.inputs) != 2 or len(given) != 2:
        return 0
    sides: dict[str, int] = {}
    for labels, ref in zip(given, node.inputs, strict=True):
        shape = graph.output(ref).shape
        before, dots, after = labels.partition("...")
        spread = [f"...{place}" for place in range(len(shape) - len(before) - len(after) if dots else 0, 0, -1)]
        for label, side in zip([*before, *spread, *after], shape, strict=False):
            sides[label] = max(side, sides.get(label, 1))
    return 2 * math.prod(sides.values())
