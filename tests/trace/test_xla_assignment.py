"""XLA's buffer assignment, written by hand, as a Timeline."""

from __future__ import annotations

from typing import Any

import pytest

from oomproof.memory.about import About
from oomproof.trace.xla.assignment import ALLOCATED, ARENA, FREED, OTHER, SHARED, read_proto, timeline_of
from oomproof.trace.xla.names import in_jax, in_tensorflow

pytest.importorskip("tensorflow")

from tensorflow.compiler.xla.service import hlo_pb2

ROLES = [("parameter", "conv"), ("input", "x")]
PLACE = in_jax(["net", "conv", "block.norm"], "adam")


def program(events: list[tuple[int, int, str, int]], names: dict[str, str], arena: int) -> Any:
    """``events``: (kind, buffer, instruction, shared with); a buffer's number is its size."""
    proto = hlo_pb2.HloProto()
    proto.hlo_module.entry_computation_id = 1
    entry = proto.hlo_module.computations.add(id=1, name="main")
    for number, (name, scope) in enumerate(names.items(), 100):
        instruction = entry.instructions.add(id=number, name=name, opcode="fusion")
        instruction.metadata.op_name = scope
        proto.hlo_module.schedule.sequences[1].instruction_ids.append(number)
    plan = proto.buffer_assignment
    plan.buffer_allocations.add(index=0, size=1000, is_entry_computation_parameter=True, parameter_number=0)
    plan.buffer_allocations.add(index=1, size=500, is_entry_computation_parameter=True, parameter_number=1)
    plan.buffer_allocations.add(index=2, size=7, is_constant=True)
    plan.buffer_allocations.add(index=3, size=9999, is_thread_local=True)
    plan.buffer_allocations.add(index=4, size=3, maybe_live_out=True)
    temporary = plan.buffer_allocations.add(index=5, size=arena)
    trace = plan.heap_simulator_traces.add()
    for kind, buffer, name, other in events:
        trace.events.add(kind=kind, buffer_id=buffer, instruction_name=name, share_with_canonical_id=other)
    for buffer in dict.fromkeys(buffer for _, buffer, _, _ in events):
        plan.logical_buffers.add(id=buffer, size=buffer)
        temporary.assigned.add(logical_buffer_id=buffer, size=buffer)
    return proto


NAMES = {
    "fusion.1": "jit(train_step)/jvp(conv)/conv_general_dilated",
    "fusion.2": "jit(train_step)/jvp(block)/norm/mul",
    "copy": "",
    "fusion.3": "jit(train_step)/transpose(jvp(conv))/reduce_sum",
    "fusion.4": "jit(train_step)/adam/sub",
}


def test_buffers_live_as_the_compiler_has_them_live() -> None:
    # What is freed is told with the instruction that made it, whenever it goes.
    events = [
        (ALLOCATED, 40, "fusion.1", 0),
        (ALLOCATED, 20, "fusion.2", 0),
        (FREED, 20, "fusion.2", 0),
        (ALLOCATED, 10, "copy", 0),
        (FREED, 10, "copy", 0),
        (ALLOCATED, 30, "fusion.3", 0),
        (FREED, 40, "fusion.1", 0),
        (ALLOCATED, 5, "fusion.4", 0),
        (FREED, 30, "fusion.3", 0),
        (FREED, 5, "fusion.4", 0),
    ]
    step = timeline_of(program(events, NAMES, 80), ROLES, PLACE, About())
    peak = step.peak()
    assert peak.bytes == 1000 + 500 + 7 + 3 + 80
    assert (peak.phase, peak.owner) == ("backward", "conv")
    kinds = step.by_kind(peak.tick)
    assert (kinds["parameter"], kinds["buffer"], kinds["input"]) == (1000, 7, 500)
    assert (kinds["activation"], kinds["gradient"]) == (40, 30)
    owners = step.by_owner(peak.tick)
    assert owners[ARENA] == 10
    assert owners["conv"] == 1000 + 40 + 30
    assert step.about.arena == 80


def test_buffers_that_share_memory_are_one_block() -> None:
    events = [
        (ALLOCATED, 40, "fusion.1", 0),
        (SHARED, 41, "fusion.2", 40),
        (FREED, 40, "fusion.1", 0),
        (ALLOCATED, 50, "fusion.3", 0),
        (FREED, 41, "fusion.2", 0),
        (FREED, 50, "fusion.3", 0),
    ]
    step = timeline_of(program(events, NAMES, 90), ROLES, PLACE, About())
    assert step.peak().bytes == 1000 + 500 + 7 + 3 + 90
    assert step.by_owner(step.peak().tick).get(ARENA, 0) == 0


def test_what_xla_has_made_up_goes_with_what_runs_around_it() -> None:
    events = [(ALLOCATED, 10, "copy", 0), (FREED, 10, "copy", 0)]
    first = timeline_of(program(events, {"copy": ""}, 10), ROLES, PLACE, About())
    assert first.by_owner(first.peak().tick)[OTHER] == 10
    events = [(ALLOCATED, 5, "fusion.1", 0), *events, (FREED, 5, "fusion.1", 0)]
    later = timeline_of(program(events, NAMES, 15), ROLES, PLACE, About())
    assert later.by_owner(later.peak().tick)["conv"] == 1000 + 15


@pytest.mark.parametrize(
    ("target", "wants"),
    [
        ("__cudnn$convForward", []),
        ("__cudnn$convBackwardInput", [True, False, False]),
        ("__cudnn$convBackwardFilter", [False, True, False]),
    ],
)
def test_convolutions_are_noted_with_channels_second(target: str, wants: list[bool]) -> None:
    x, w, y = (8, 32, 32, 3), (16, 3, 3, 3), (8, 16, 16, 16)
    order = {"__cudnn$convForward": (x, w, y), "__cudnn$convBackwardInput": (y, w, x)}
    first, second, result = order.get(target, (x, y, w))
    proto = program([(ALLOCATED, 10, "call", 0), (FREED, 10, "call", 0)], {"call": NAMES["fusion.1"]}, 10)
    entry = proto.hlo_module.computations[0]
    call = entry.instructions[0]
    call.opcode, call.custom_call_target = "custom-call", target
    for number, shape in ((1, first), (2, second)):
        operand = entry.instructions.add(id=number, name=f"p{number}", opcode="parameter")
        operand.shape.element_type = 10
        operand.shape.dimensions.extend(shape)
        operand.shape.layout.minor_to_major.extend((3, 2, 1, 0))
        call.operand_ids.append(number)
    made = call.shape.tuple_shapes.add(element_type=10)
    made.dimensions.extend(result)
    made.layout.minor_to_major.extend((3, 2, 1, 0))
    for size in (3, 3):
        call.window.dimensions.add(size=size, stride=2, window_dilation=1)
    call.feature_group_count = 1
    numbers = call.convolution_dimension_numbers
    numbers.input_feature_dimension = numbers.output_feature_dimension = numbers.kernel_input_feature_dimension = 3
    for sides in (
        numbers.input_spatial_dimensions,
        numbers.output_spatial_dimensions,
        numbers.kernel_spatial_dimensions,
    ):
        sides.extend((1, 2))
    step = timeline_of(read_proto(proto.SerializeToString()), ROLES, PLACE, About())
    assert len(step.calls) == 2  # one a step
    [spec] = step.calls.specs
    assert '"x":[8,3,32,32]' in spec
    assert '"w":[16,3,3,3]' in spec
    assert '"y":[8,16,16,16]' in spec
    assert '"channels_last":true' in spec
    assert '"dtype":"float16"' in spec
    assert ('"wants"' in spec) == bool(wants)


def test_names_of_both_frameworks_tell_layer_and_phase() -> None:
    assert PLACE("jit(train_step)/jvp(net)/block/norm/mul") == ("forward", "block.norm")
    assert PLACE("jit(train_step)/transpose(jvp(conv))/mul") == ("backward", "conv")
    assert PLACE("jit(train_step)/adam/add") == ("optimizer", "")
    assert PLACE("") == ("", "")
    place = in_tensorflow({"net_1": "net", "net_1/conv_1_2": "conv_1"}, "adam")
    assert place("net_1/conv_1_2/convolution") == ("forward", "conv_1")
    assert place("gradient_tape/net_1/conv_1_2/convolution/Conv2DBackpropInput") == ("backward", "conv_1")
    assert place("adam/AssignSubVariableOp_6") == ("optimizer", "")
