"""XLA's buffer assignment as a Timeline: parameters, results, and every buffer inside the one block for temporaries.

XLA takes the temporaries of a step as one block, the arena, and has decided beforehand which buffer lies where in it.
The Timeline shows the buffers with their lifetimes, so that reports can say what fills the arena. What the arena has
beyond its fullest moment is a block of its own. ``memory/arena.py`` puts them together again for the allocator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from oomproof.memory.about import About
from oomproof.memory.timeline import KINDS, Builder, Timeline
from oomproof.trace.xla.convolutions import read_convolution

STEPS = 2
ARENA = "(XLA's arena)"
RESULTS = "(results)"
OTHER = "(XLA)"
ALLOCATED, FREED, SHARED = 0, 1, 2
"""kinds of a HeapSimulatorTrace's events"""

Place = Callable[[str], tuple[str, str]]
"""(phase, owner) by the name that the framework gave to an operation"""


@dataclass(frozen=True)
class Moment:
    """One operation in the order in which the program runs: what it takes, and what it gives back."""

    op: str
    phase: str
    owner: str
    events: tuple[tuple[int, int, int], ...]
    """(kind, buffer, buffer that it shares with)"""
    call: Mapping[str, Any] | None
    """a convolution's shapes"""


def read_proto(data: bytes) -> Any:
    """An HloProto. TensorFlow brings the classes for it."""
    from oomproof.frameworks.tensorflow import parse_hlo

    return parse_hlo(data)


def timeline_of(proto: Any, roles: Sequence[tuple[str, str]], place: Place, about: About) -> Timeline:
    """Two steps in a row. ``roles`` has (kind, owner) of every parameter of the program, by its number."""
    assignment = proto.buffer_assignment
    sizes = {buffer.id: int(buffer.size) for buffer in assignment.logical_buffers}
    moments = _moments(proto, place)
    simulated = {buffer for moment in moments for _, buffer, _ in moment.events}
    builder = Builder()
    inputs, results, arena = [], 0, 0
    for allocation in assignment.buffer_allocations:
        if allocation.is_thread_local or not allocation.size:
            continue
        if allocation.is_entry_computation_parameter:
            kind, owner = _role(roles, allocation.parameter_number)
            if kind == "input":
                inputs.append((int(allocation.size), owner))
            else:
                builder.allocate(int(allocation.size), kind=kind, owner=owner, op="variable")
        elif allocation.is_constant:
            builder.allocate(int(allocation.size), kind="buffer", owner="(constants)", op="constant")
        elif any(each.logical_buffer_id in simulated for each in allocation.assigned):
            arena += int(allocation.size)
        else:
            results += int(allocation.size)
    gaps = max(0, arena - _fullest(moments, sizes))
    for _ in range(STEPS):
        builder.enter("forward")
        held = [builder.allocate(size, kind="input", owner=owner, op="input") for size, owner in inputs]
        held.append(builder.allocate(gaps, kind="temporary", owner=ARENA, op="between buffers"))
        held.append(builder.allocate(results, kind="temporary", owner=RESULTS, op="result"))
        _run(builder, moments, sizes)
        for block in held:
            builder.free(block)
    return builder.build(replace(about, arena=arena))


def _role(roles: Sequence[tuple[str, str]], number: int) -> tuple[str, str]:
    return roles[number] if number < len(roles) else ("buffer", "(unknown)")


def _moments(proto: Any, place: Place) -> list[Moment]:
    """The program in its order, with the events of each operation."""
    module = proto.hlo_module
    entry = next(each for each in module.computations if each.id == module.entry_computation_id)
    by_id = {instruction.id: instruction for instruction in entry.instructions}
    scheduled = module.schedule.sequences
    order = list(scheduled[entry.id].instruction_ids) if entry.id in scheduled else list(by_id)
    index = {by_id[number].name: at for at, number in enumerate(order) if number in by_id}
    events: dict[int, list[tuple[int, int, int]]] = {}
    at = 0
    for trace in proto.buffer_assignment.heap_simulator_traces:
        for event in trace.events:
            # What is freed is told with the operation that made it; it goes when the order of events has it go. What
            # happens inside a loop happens when the loop runs.
            at = index.get(event.instruction_name, at) if event.kind != FREED else at
            events.setdefault(at, []).append((event.kind, event.buffer_id, event.share_with_canonical_id))
    bodies = {each.id: each for each in module.computations}
    moments: list[Moment] = []
    phase, owner, returning = "forward", OTHER, False
    for at, number in enumerate(order):
        instruction = by_id[number]
        call = read_convolution(instruction, by_id)
        if at in events or call is not None:
            found, at_home = place(_name(instruction, bodies))
            # What XLA has made up itself (copies, zeros) goes with what runs around it.
            owner = at_home or (OTHER if found else owner)
            returning = returning or found == "backward"
            phase = _phase(found or phase, returning)
            op = instruction.custom_call_target.removeprefix("__") or instruction.name.split(".")[0]
            moments.append(Moment(op, phase, owner, tuple(events.get(at, ())), call))
    return moments


def _phase(named: str, returning: bool) -> str:
    """XLA runs parts of the update early, and computes parts of forward again in the backward pass."""
    if not returning:
        return "forward"
    return "backward" if named == "forward" else named


def _name(instruction: Any, bodies: Mapping[int, Any]) -> str:
    """The framework's name for it; a fusion without one has those of what was fused."""
    if instruction.metadata.op_name or instruction.opcode != "fusion":
        return str(instruction.metadata.op_name)
    inner = (each for number in instruction.called_computation_ids for each in bodies[number].instructions)
    return next((str(each.metadata.op_name) for each in inner if each.metadata.op_name), "")


def _fullest(moments: Sequence[Moment], sizes: Mapping[int, int]) -> int:
    builder = Builder()
    _run(builder, moments, sizes)
    return builder.build().peak().bytes


def _run(builder: Builder, moments: Sequence[Moment], sizes: Mapping[int, int]) -> None:
    """One step of the arena's buffers. Those that share memory are one block, which lives until the last is gone."""
    block_of: dict[int, int] = {}
    users: dict[int, int] = {}
    born: dict[int, str] = {}
    for moment in moments:
        builder.enter(moment.phase)
        called = moment.call is None
        for kind, buffer, other in moment.events:
            if kind == SHARED and other in block_of:
                block = block_of[buffer] = block_of[other]
                users[block] += 1
            elif kind != FREED:
                block = builder.allocate(sizes[buffer], kind="temporary", owner=moment.owner, op=moment.op)
                block_of[buffer], users[block], born[block] = block, 1, moment.phase
            elif buffer in block_of:
                if not called:
                    _call(builder, moment)
                    called = True
                block = block_of[buffer]
                users[block] -= 1
                if not users[block]:
                    builder.kinds[block] = KINDS.index(_kind(born[block], moment.phase))
                    builder.free(block)
        if not called:
            _call(builder, moment)
    for block in set(block_of.values()):
        builder.free(block)


def _call(builder: Builder, moment: Moment) -> None:
    assert moment.call is not None
    builder.call(owner=moment.owner, spec=moment.call)


def _kind(born: str, died: str) -> str:
    """What is kept from forward for later is an activation, what waits for the update a gradient."""
    if born == "forward" and died != "forward":
        return "activation"
    return "gradient" if born == "backward" and died == "optimizer" else "temporary"
