"""Runs a graph in an order without computing anything: which memory is taken when, and when it is given back.

The rules are those of TensorFlow's executor. A tensor's memory has one reference for every node that has yet to read
it; a node lets go of its inputs when it has run. A kernel may write its result into an input that has no other reader
left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from oomproof.memory.timeline import KINDS, Builder, Shape
from oomproof.trace.tensorflow.buffers import held, kernels
from oomproof.trace.tensorflow.buffers.held import TRIPS, HeldMemory
from oomproof.trace.tensorflow.buffers.turns_ahead import MOST_TURNS, count_bytes_ahead
from oomproof.trace.tensorflow.graph.graph import Graph, Node, Output, Ref
from oomproof.trace.tensorflow.order.order import gpu_order
from oomproof.trace.tensorflow.roles import Roles
from oomproof.trace.tensorflow.sizes.turns import turns_of
from oomproof.trace.tensorflow.work import Workbook

_TEMPORARY = KINDS.index("temporary")


@dataclass(eq=False)
class RunningGraph:
    """A graph that runs: the step's own, or the body of a loop."""

    graph: Graph
    roles: Roles
    uses: Mapping[Ref, int]
    values: dict[Ref, HeldMemory | None] = field(default_factory=dict)


class Execution:
    """Writes a step's memory into a Builder."""

    def __init__(
        self,
        builder: Builder,
        *,
        on_gpu: bool,
        turns_ahead: bool = False,
        scratch: Callable[[Graph, Node], Mapping[str, Any] | None] = lambda graph, node: None,
    ) -> None:
        self.builder = builder
        self.on_gpu = on_gpu
        self.turns_ahead = turns_ahead
        """whether turns of a loop run ahead as far as they can"""
        self.scratch = scratch
        self.variables: dict[str, HeldMemory] = {}
        """by the name of the handle"""
        self._variable_roles: dict[str, tuple[str, str]] = {}
        self._constants: dict[tuple[int, int], HeldMemory] = {}
        self._bodies: dict[int, tuple[Graph, list[int]]] = {}
        self._kept: list[HeldMemory] = []
        """until the end of the step"""
        self.workbook: Workbook | None = None
        """where the work of operations is noted, while there is one"""

    def hold(self, nbytes: int, *, kind: str, owner: str, op: str, shape: Shape | None = None) -> HeldMemory:
        """Memory that is there before the step and stays: a variable, an input."""
        memory = HeldMemory(self.builder.allocate(nbytes, kind=kind, owner=owner, op=op, shape=shape), nbytes)
        memory.references = 1
        return memory

    def release(self, memory: HeldMemory) -> None:
        """The end of what ``hold`` began."""
        self._drop(memory)

    def hold_variable(self, name: str, nbytes: int, *, kind: str, owner: str, shape: Shape | None = None) -> None:
        self._variable_roles[name] = kind, owner
        self.variables[name] = self.hold(nbytes, kind=kind, owner=owner, op="variable", shape=shape)

    def run(self, graph: Graph, order: Sequence[int], roles: Roles, given: Mapping[int, HeldMemory]) -> None:
        """One step; ``given`` is the memory of nodes that stand for inputs."""
        frame = RunningGraph(graph, roles, graph.uses())
        for number, memory in given.items():
            self._put(frame, (number, 0), memory)
        for number in order:
            self._execute(frame, number)
        for ref in graph.results:
            self._drop(frame.values.get(ref))
        while self._kept:
            self._drop(self._kept.pop())

    def prepare(self, graph: Graph, roles: Roles) -> None:
        """Constants get their memory when the kernels are made, before the first step."""
        for number, node in enumerate(graph.nodes):
            if node.op == "Const" and node.outputs[0].bytes and not self._elsewhere(node, node.outputs[0]):
                output = node.outputs[0]
                self._constants[id(graph), number] = self.hold(
                    output.bytes, kind="buffer", owner=roles.owner[number], op="Const", shape=output.shape
                )
            for body in node.bodies:
                self.prepare(body, roles.inside(number, body))

    # -- one node ----------------------------------------------------------------------------------------------

    def _execute(self, frame: RunningGraph, number: int) -> None:
        graph, node = frame.graph, frame.graph.nodes[number]
        self.builder.enter(frame.roles.phase[number])
        if node.bodies:
            self._loop(frame, number)
        elif node.op in kernels.VARIABLE_READS:
            self._put(frame, (number, 0), self.variables.get(self._variable(graph, node.inputs[0])))
        elif node.op in kernels.VARIABLE_TAKES or node.op in kernels.VARIABLE_UPDATES:
            self._update(frame, node)
        elif node.op == "Const":
            self._put(frame, (number, 0), self._constants.get((id(graph), number)))
        elif node.op in kernels.REF_VARIABLES:
            self._put(frame, (number, 0), self.variables.get(node.name))
        elif node.op not in kernels.HANDLES:
            self._compute(frame, number)
        if self.workbook is not None:
            roles = frame.roles
            self.workbook.note(self.builder.ticks, roles.owner[number], roles.phase[number], graph, node)
        for ref in node.inputs:
            self._drop(frame.values.get(ref))

    def _compute(self, frame: RunningGraph, number: int) -> None:
        graph, node = frame.graph, frame.graph.nodes[number]
        taken: list[HeldMemory] = []
        made: list[HeldMemory | None] = []
        for index, output in enumerate(node.outputs):
            source = kernels.find_shared_input(graph, node, index)
            memory: HeldMemory | None
            if output.dtype == "variant" and node.op in held.COPIES:
                memory = self._copy_list(frame, (number, index))
            elif source is not None:
                memory = frame.values.get(source)
                self._join(frame, node, memory)
            elif node.op in held.MAKERS:
                memory = HeldMemory(-1, 0, room=self._room(graph, node))
            elif node.op in held.READS or not output.bytes or self._elsewhere(node, output):
                memory = None
            else:
                memory = self._find_reused(frame, node, index, taken)
                if memory is None:
                    memory = self._new(frame, (number, index), output.bytes)
                elif self.builder.kinds[memory.block] == _TEMPORARY:
                    # The bias is added to a convolution's result in place: what is kept is what came last.
                    self.builder.kinds[memory.block] = KINDS.index(frame.roles.kind((number, index)))
            made.append(memory)
        wanted = self.scratch(graph, node)
        if wanted is not None:
            self.builder.call(owner=frame.roles.owner[number], spec=wanted)
        for index, memory in enumerate(made):
            self._put(frame, (number, index), memory)

    def _new(self, frame: RunningGraph, ref: Ref, nbytes: int) -> HeldMemory:
        roles = frame.roles
        kind, owner, op = roles.kind(ref), roles.owner[ref[0]], frame.graph.nodes[ref[0]].op
        output = frame.graph.output(ref)
        shape = output.shape if output.bytes == nbytes else None  # of a list, neither says what it holds
        return HeldMemory(self.builder.allocate(nbytes, kind=kind, owner=owner, op=op, shape=shape), nbytes)

    def _find_reused(self, frame: RunningGraph, node: Node, index: int, taken: list[HeldMemory]) -> HeldMemory | None:
        """The memory of an input that this node is the last to read, and that is like the output."""
        output = node.outputs[index]
        for place in kernels.find_writable_inputs(node, index, self.on_gpu):
            memory = frame.values.get(node.inputs[place])
            if memory is None or memory.references != 1 or memory in taken:
                continue
            source = frame.graph.output(node.inputs[place])
            if source.dtype == output.dtype and source.bytes == output.bytes:
                taken.append(memory)
                return memory
        return None

    def _join(self, frame: RunningGraph, node: Node, memory: HeldMemory | None) -> None:
        """Lists keep what is put into them."""
        if memory is None:
            return
        if node.op in held.WRITES:
            item = frame.values.get(node.inputs[held.WRITES[node.op]])
            if item is not None:
                held.put_into(memory, item, lambda more: self._turns(node, more))
        elif node.op in held.ADDS:
            for other in (frame.values.get(ref) for ref in node.inputs[1:]):
                if other is not None and other is not memory:
                    held.add_to(memory, other, lambda more: self._turns(node, more))

    def _turns(self, node: Node, nbytes: int) -> int:
        """What the turns of a loop make that are not gone through."""
        return self.builder.allocate(nbytes, kind="activation", owner="", op=node.op)

    def _copy_list(self, frame: RunningGraph, ref: Ref) -> HeldMemory:
        node = frame.graph.nodes[ref[0]]
        source = frame.values.get(node.inputs[0])
        nbytes = frame.graph.output(node.inputs[0]).bytes or (source.elements() if source is not None else 0)
        shape = frame.graph.output(node.inputs[0]).shape
        made = HeldMemory(-1, 0, room=shape[0] if shape else source.room if source is not None else 1)
        if nbytes:
            made.parts.append(self._new(frame, ref, nbytes))
            made.parts[0].references = 1
        return made

    def _room(self, graph: Graph, node: Node) -> int:
        count = graph.nodes[node.inputs[1][0]].attrs.get("value") if len(node.inputs) > 1 else None
        return max(1, int(count[0])) if count else 1

    # -- variables ---------------------------------------------------------------------------------------------

    def _variable(self, graph: Graph, ref: Ref) -> str:
        """The handle that a node reads, through whatever hands it on."""
        node = graph.nodes[ref[0]]
        while node.op != "VarHandleOp" and node.inputs:
            ref = node.inputs[ref[1] if node.op in kernels.SHARES_EACH else 0]
            node = graph.nodes[ref[0]]
        return node.name

    def _update(self, frame: RunningGraph, node: Node) -> None:
        if node.op in kernels.VARIABLE_TAKES:
            self._replace(self._variable(frame.graph, node.inputs[0]), frame.values.get(node.inputs[1]))
            return
        for ref in node.inputs:
            if frame.graph.output(ref).dtype == "resource":
                self._change(self._variable(frame.graph, ref), node.op)

    def _replace(self, name: str, value: HeldMemory | None) -> None:
        held = self.variables.get(name)
        if held is None or value is None or value is held:
            return
        value.references += 1
        self._stays_as(value, held)
        self.variables[name] = value
        self._drop(held)

    def _change(self, name: str, op: str) -> None:
        held = self.variables.get(name)
        if held is None or held.references == 1:
            return
        # Somebody still reads the old value: it is copied before it is changed.
        kind, owner = self._variable_roles[name]
        self.variables[name] = self.hold(held.bytes, kind=kind, owner=owner, op=op)
        self._drop(held)

    def _stays_as(self, value: HeldMemory, held: HeldMemory) -> None:
        """What becomes a variable's memory is of the variable's kind from now on."""
        if value.block >= 0 and value.references == 2:
            self.builder.kinds[value.block] = self.builder.kinds[held.block]

    # -- loops -------------------------------------------------------------------------------------------------

    def _loop(self, frame: RunningGraph, number: int) -> None:
        node = frame.graph.nodes[number]
        roles = frame.roles
        state = [frame.values.get(ref) for ref in node.inputs]
        for place, memory in enumerate(state):
            if any(memory is each for each in state[:place]) and not _hands_on(node.bodies[-1], place):
                state[place] = held.copy_list(memory)
            self._take(state[place])
        turns = turns_of(frame.graph, node)
        self._enter_lists(node, state, turns)
        ahead = self._run_ahead(frame, number, turns) if self.turns_ahead else None
        for _ in range(TRIPS):
            for body in node.bodies:
                inner = RunningGraph(body, roles.inside(number, body), body.uses())
                for place, memory in zip(body.arguments, state, strict=True):
                    self._put(inner, (place, 0), memory)
                for each in self._order(body):
                    self._execute(inner, each)
                results = [inner.values.get(ref) for ref in body.results]
                if body is node.bodies[-1]:
                    for memory in state:
                        self._drop(memory)
                    state = results
                else:
                    for memory in results:
                        self._drop(memory)
        for index, memory in enumerate(state):
            self._put(frame, (number, index), memory)
            self._drop(memory)
        self._drop(ahead)

    def _run_ahead(self, frame: RunningGraph, number: int, turns: int | None) -> HeldMemory | None:
        """What all turns but one have ready for the rest of them."""
        node = frame.graph.nodes[number]
        at_once = min(MOST_TURNS if turns is None else turns, int(node.attrs.get("parallel_iterations", MOST_TURNS)))
        nbytes = count_bytes_ahead(node.bodies[-1]) * (at_once - 1)
        if nbytes <= 0:
            return None
        return self.hold(nbytes, kind="temporary", owner=frame.roles.owner[number], op=node.op)

    def _enter_lists(self, node: Node, state: Sequence[HeldMemory | None], turns: int | None) -> None:
        for place, memory in enumerate(state):
            if memory is None or memory.block >= 0:
                continue
            if not memory.parts and memory.room == 1:  # a list without a limit gets an element in each turn
                memory.room = turns or 1
            if memory.parts and _hands_on(node.bodies[-1], place):
                # Seen in real steps: a list that a loop reads is still there when the gradients' loop runs.
                self._take(memory)
                self._kept.append(memory)

    def _order(self, body: Graph) -> list[int]:
        if id(body) not in self._bodies:
            self._bodies[id(body)] = body, gpu_order(body)
        return self._bodies[id(body)][1]

    # -- references --------------------------------------------------------------------------------------------

    def _put(self, frame: RunningGraph, ref: Ref, memory: HeldMemory | None) -> None:
        """The output is there; it has as many readers as the graph says."""
        frame.values[ref] = memory
        if memory is None:
            return
        memory.references += frame.uses.get(ref, 0)
        if memory.references == 0:
            memory.references = 1
            self._drop(memory)

    def _take(self, memory: HeldMemory | None) -> None:
        if memory is not None:
            memory.references += 1

    def _drop(self, memory: HeldMemory | None) -> None:
        if memory is None:
            return
        memory.references -= 1
        if memory.references == 0:
            if memory.block >= 0:
                self.builder.free(memory.block)
            for part in memory.parts:
                self._drop(part)

    def _elsewhere(self, node: Node, output: Output) -> bool:
        return self.on_gpu and kernels.is_on_host(node, output)


def _hands_on(body: Graph, place: int) -> bool:
    """Whether a loop's body gives back an argument as it got it."""
    number = body.results[place][0]
    while body.nodes[number].op == "Identity":
        number = body.nodes[number].inputs[0][0]
    return number == body.arguments[place]
