"""The graph of a step with many images, from two graphs of the same step with few.

Some steps have a part for every image (the Object Detection API's do, where it assigns ground truth), and building them
for hundreds of images takes minutes. But every tensor grows along a line, and there are as many more of them as there
are images: two sizes say the rest. Nodes stay those of the larger graph. Those that stand once for every image stand
for more than one each, and are as much larger.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from oomproof.trace.tensorflow.graph.graph import Graph, Node, Output

_COUNTER = re.compile(r"_\d+(?=/|$)")
"""what TensorFlow adds to a name that is taken: which number a node gets depends on how many images come before"""

Kin = tuple[str, str]
"""name without counters, and operation: nodes of one kin are one node, or one for every image"""


@dataclass(frozen=True)
class Extrapolation:
    """Where a figure is with ``images``, that is known with ``few`` and with ``more`` of them."""

    few: int
    more: int
    images: int

    def at(self, few: float, more: float) -> int:
        return max(0, round(more + (more - few) * (self.images - self.more) / (self.more - self.few)))


def with_more_images(few: Graph, more: Graph, line: Extrapolation) -> Graph:
    """``more`` as it would be with ``line.images`` images."""
    before, after = _by_kin(few), _by_kin(more)
    nodes = list(more.nodes)
    for kin, numbers in after.items():
        same = [few.nodes[number] for number in before.get(kin, ())]
        these = [more.nodes[number] for number in numbers]
        alike = [len(node.outputs) for node in same] == [len(node.outputs) for node in these]
        grown = _grow_each(same, these, line) if alike else _grow_together(same, these, line)
        for number, node in zip(numbers, grown, strict=True):
            nodes[number] = node
    return replace(more, nodes=tuple(nodes))


def _by_kin(graph: Graph) -> dict[Kin, list[int]]:
    found: dict[Kin, list[int]] = {}
    for number, node in enumerate(graph.nodes):
        found.setdefault((_COUNTER.sub("", node.name), node.op), []).append(number)
    return found


def _grow_each(few: Sequence[Node], more: Sequence[Node], line: Extrapolation) -> list[Node]:
    """Nodes that are there once, whatever the number of images: each follows its own line."""
    by_name = {node.name: node for node in few}
    if by_name.keys() == {node.name for node in more}:
        few = [by_name[node.name] for node in more]
    return [grow_node(before, after, line) for before, after in zip(few, more, strict=True)]


def grow_node(few: Node, more: Node, line: Extrapolation) -> Node:
    outputs = tuple(grow_output(before, after, line) for before, after in zip(few.outputs, more.outputs, strict=True))
    bodies = more.bodies
    if len(few.bodies) == len(more.bodies):
        bodies = tuple(with_more_images(*pair, line) for pair in zip(few.bodies, more.bodies, strict=True))
    attrs, value = more.attrs, more.attrs.get("value")
    known = few.attrs.get("value")
    if value != known and value and known and len(value) == len(known) and isinstance(value[0], int):
        # Sizes that are numbers in the graph: how often a loop turns, how long a list gets.
        attrs = {**attrs, "value": [line.at(*pair) for pair in zip(known, value, strict=True)]}
    return replace(more, outputs=outputs, bodies=bodies, attrs=attrs)


def grow_output(few: Output, more: Output, line: Extrapolation) -> Output:
    if few.shape == more.shape:
        return more
    if len(few.shape) != len(more.shape):
        return _scale(more, line.images / line.more)
    shape = tuple(line.at(*pair) for pair in zip(few.shape, more.shape, strict=True))
    return replace(more, shape=shape, bytes=line.at(few.bytes, more.bytes))


def _grow_together(few: Sequence[Node], more: Sequence[Node], line: Extrapolation) -> list[Node]:
    """Nodes or results of which there are more with more images: what those of one form hold follows a line."""
    less, all_ = _sum_by_form(few), _sum_by_form(more)
    factors = {form: _factor(less.get(form), held, line) for form, held in all_.items()}
    times = max(1, round(line.at(len(few), len(more)) / len(more)))
    return [
        replace(node, outputs=tuple(_scale(each, factors[_form(each)]) for each in node.outputs), times=times)
        for node in more
    ]


Form = tuple[str, int, tuple[int, ...]]


def _form(output: Output) -> Form:
    """What results of one kin have in common that are alike but for the number of images."""
    return output.dtype, len(output.shape), output.shape[1:]


def _sum_by_form(nodes: Sequence[Node]) -> dict[Form, int]:
    found: dict[Form, int] = {}
    for node in nodes:
        for output in node.outputs:
            found[_form(output)] = found.get(_form(output), 0) + output.bytes
    return found


def _factor(few: int | None, more: int, line: Extrapolation) -> float:
    if few is None or not more:  # what is not known of both grows as the batch does
        return line.images / line.more
    return line.at(few, more) / more


def _scale(output: Output, factor: float) -> Output:
    first, *rest = output.shape or (1,)
    return replace(output, shape=(round(first * factor), *rest), bytes=round(output.bytes * factor))
