"""What turns of a loop hold that run ahead of the others.

TensorFlow starts a turn as soon as the counter allows it. What a turn computes from the counter and from what is the
same in all turns does not wait for the turns before: a ConvLSTM's convolutions of its input were seen to run for all
frames before the second frame's state was there (TensorFlow 2.21).
"""

from __future__ import annotations

from oomproof.trace.tensorflow.buffers import held, kernels
from oomproof.trace.tensorflow.graph.graph import Graph, Ref

MOST_TURNS = 10
"""at once: parallel_iterations, where a loop does not say another number"""
_LIGHT = 256
"""bytes: counters, limits, shapes. Operations on them take no time"""


def count_bytes_ahead(body: Graph) -> int:
    """Bytes that a turn which runs ahead keeps for those of its operations that have to wait."""
    quick = _find_quick_arguments(body)
    is_ahead = _depends_on_none_but(body, {body.arguments[place] for place in quick})
    uses_list = {node.inputs[held.WRITES[node.op]] for node in body.nodes if node.op in held.WRITES}
    in_lists = {_find_root(body, ref) for ref in uses_list}  # counted as elements of the list
    waiting = {
        _find_root(body, ref)
        for number, node in enumerate(body.nodes)
        if not is_ahead[number]
        for ref in node.inputs
        if is_ahead[ref[0]]
    }
    return sum(body.output(ref).bytes for ref in waiting - in_lists if _takes_memory(body, ref))


def _find_quick_arguments(body: Graph) -> set[int]:
    """Places of what a turn gets from the one before without waiting for anything that takes time."""
    quick = {place for place in range(len(body.arguments)) if _is_light(body, place)}
    while True:
        is_ahead = _depends_on_none_but(body, {body.arguments[place] for place in quick})
        left = {place for place in quick if is_ahead[body.results[place][0]]}
        if left == quick:
            return quick
        quick = left


def _is_light(body: Graph, place: int) -> bool:
    """Whether what makes the argument's next value takes no time."""
    waiting, seen = [body.results[place][0]], set(body.arguments)
    while waiting:
        number = waiting.pop()
        if number in seen:
            continue
        seen.add(number)
        node = body.nodes[number]
        if node.bodies or any(_takes_memory(body, (number, index)) for index in range(len(node.outputs))):
            return False
        waiting += [ref[0] for ref in node.inputs]
    return True


def _depends_on_none_but(body: Graph, arguments: set[int]) -> list[bool]:
    """For each node whether it needs no argument besides these."""
    found: list[bool] = []
    others = set(body.arguments) - arguments
    for number, node in enumerate(body.nodes):
        before = (*(ref[0] for ref in node.inputs), *node.controls)
        found.append(number not in others and all(found[each] for each in before))
    return found


def _takes_memory(body: Graph, ref: Ref) -> bool:
    node = body.nodes[ref[0]]
    if node.op in kernels.HANDLES or node.op in kernels.VARIABLE_READS or node.op in held.READS:
        return False
    return body.output(ref).bytes > _LIGHT and kernels.find_shared_input(body, node, ref[1]) is None


def _find_root(body: Graph, ref: Ref) -> Ref:
    """The output whose memory it is."""
    source: Ref | None = ref
    while source is not None:
        ref, source = source, kernels.find_shared_input(body, body.nodes[source[0]], source[1])
    return ref
