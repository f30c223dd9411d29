"""Whose memory it is: phase and owner of every node, kind of every tensor.

Gradients are told by their names, as TensorFlow gives them (``gradient_tape/...``, ``gradients/...``); the rest follows
from what depends on what. A node that needs a gradient, and that no gradient needs, updates weights.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from oomproof.trace.tensorflow.buffers import kernels
from oomproof.trace.tensorflow.graph.capture import Variable
from oomproof.trace.tensorflow.graph.graph import Graph, Ref

OUTSIDE = "(step)"
"""owner of what belongs to no layer: losses, metrics, the update"""
GRADIENT = re.compile(r"(?:^|/)(?:gradient_tape|gradients(?:_\d+)?)/")
"""what TensorFlow puts in front of the name of the operation a gradient is of"""
_ADDED_BY_GRAPPLER = re.compile(r"^(?:ConstantFolding|ArithmeticOptimizer|LayoutOptimizer)/|-\d+-.*LayoutOptimizer$")
_UPDATES_WITH_SLOTS = ("ResourceApply", "ResourceSparseApply", "Apply", "SparseApply")
"""operations that update their first input, and whatever variables follow it are its slots"""
_SHARED_WITH_FORWARD = frozenset({"Const", "Shape", "ShapeN", "Size", "Rank", "VarHandleOp", "ReadVariableOp"})
"""what grappler lets the forward pass read although a gradient gave it its name"""


@dataclass(frozen=True)
class Roles:
    phase: Sequence[str]
    owner: Sequence[str]
    kinds: Mapping[Ref, str] = field(default_factory=dict)

    def kind(self, ref: Ref) -> str:
        return self.kinds.get(ref, "temporary")

    def inside(self, number: int, body: Graph) -> Roles:
        """Roles in the body of a loop: all as the loop's."""
        count = len(body.nodes)
        return Roles([self.phase[number]] * count, [self.owner[number]] * count)


def roles_of(graph: Graph, owners: Mapping[str, str]) -> Roles:
    """``owners`` knows name scopes; a node belongs to the innermost one it is in, or else to its own scope."""
    phase = _phases(graph)
    return Roles(phase, [_owner(node.name, owners) for node in graph.nodes], _kinds(graph, phase))


def roles_of_copies(roles: Roles, graph: Graph, sources: Sequence[int]) -> Roles:
    """Roles in a graph whose nodes are copies of those that ``roles`` are of: ``sources`` says of which."""
    phase = [roles.phase[source] for source in sources]
    return Roles(phase, [roles.owner[source] for source in sources], _kinds(graph, phase))


def variable_roles(
    graph: Graph, roles: Roles, variables: Sequence[Variable], known: Mapping[int, tuple[str, str]]
) -> dict[str, tuple[str, str]]:
    """(kind, owner) of each variable, by the name of its handle. ``known`` says so by id() of the handle; of the
    others, what is trained is a parameter, what only the update writes belongs to the optimizer. A slot has the owner
    of the weight that it is updated with."""
    written = set[str]()
    updated_with: dict[str, str] = {}
    for number, node in enumerate(graph.nodes):
        names = [graph.nodes[source].name for source, _ in node.inputs]
        if roles.phase[number] == "optimizer" and node.op not in kernels.VARIABLE_READS:
            written.update(names)
        if node.op.startswith(_UPDATES_WITH_SLOTS):
            updated_with.update(dict.fromkeys(names[1:], names[0]))
    found: dict[str, tuple[str, str]] = {}
    for variable in variables:
        handle, is_weight = variable.node, variable.trainable
        if is_weight is None:
            is_weight = handle in updated_with.values()
        kind = "parameter" if is_weight else "optimizer" if handle in written else "buffer"
        found[handle] = known.get(variable.identity, (kind, to_module_path(variable.name.split(":")[0], keep=-1)))
    for variable in variables:
        weight = updated_with.get(variable.node)
        if weight in found and variable.identity not in known:
            found[variable.node] = "optimizer", found[weight][1]
    return found


def _phases(graph: Graph) -> list[str]:
    named = [
        node.op not in _SHARED_WITH_FORWARD
        and bool(GRADIENT.search(node.name))
        and not _ADDED_BY_GRAPPLER.search(node.name)
        for node in graph.nodes
    ]
    after = list(named)
    for number, node in enumerate(graph.nodes):
        if not after[number]:  # moments that a gradient was added to are read again: only a control edge tells
            after[number] = any(after[source] for source, _ in node.inputs) or any(after[n] for n in node.controls)
    needed = list(named)
    for number in range(len(graph.nodes) - 1, -1, -1):
        if needed[number]:
            for source, _ in graph.nodes[number].inputs:
                needed[source] = True
    phases = []
    for number, node in enumerate(graph.nodes):
        if not after[number]:
            phases.append("forward")
        elif needed[number] and not (node.op in kernels.VARIABLE_UPDATES or node.op in kernels.VARIABLE_TAKES):
            phases.append("backward")
        else:
            phases.append("optimizer")
    return phases


def _kinds(graph: Graph, phase: Sequence[str]) -> dict[Ref, str]:
    """An activation is made in the forward pass and read in the backward pass; a gradient is made in the backward pass
    and read by the update."""
    read: dict[Ref, set[str]] = {}
    for number in range(len(graph.nodes) - 1, -1, -1):
        node = graph.nodes[number]
        for index in range(len(node.outputs)):
            source = kernels.find_shared_input(graph, node, index)
            if source is not None:  # who reads the same memory under another name reads it too
                read.setdefault(source, set()).update(read.get((number, index), ()))
        for ref in node.inputs:
            read.setdefault(ref, set()).add(phase[number])
    kinds: dict[Ref, str] = {}
    for ref, readers in read.items():
        made = phase[ref[0]]
        if made == "forward" and "backward" in readers:
            kinds[ref] = "activation"
        elif made == "backward" and "optimizer" in readers:
            kinds[ref] = "gradient"
    return kinds


def _owner(name: str, owners: Mapping[str, str]) -> str:
    plain = GRADIENT.split(name)[-1]
    plain = _ADDED_BY_GRAPPLER.sub("", plain)
    scope = plain
    while "/" in scope:
        scope = scope.rpartition("/")[0]
        if scope in owners:
            return owners[scope]
    if owners or "/" not in plain:
        return OUTSIDE
    return to_module_path(plain, keep=-1)


def to_module_path(name: str, keep: int) -> str:
    """A name's scopes as a module path."""
    return ".".join(name.split("/")[:keep]) or name
