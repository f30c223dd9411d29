"""Orders, branches and lifetimes of small graphs written by hand: no TensorFlow is needed to say what must come out."""

from __future__ import annotations

from oomproof.memory.timeline import Builder, Timeline
from oomproof.trace.tensorflow.buffers.liveness import Execution
from oomproof.trace.tensorflow.graph.branches import take_branches
from oomproof.trace.tensorflow.graph.graph import Graph, Node, Output, Ref
from oomproof.trace.tensorflow.order.order import (
    PROCESSES,
    cpu_order,
    gpu_order,
    likely_orders,
    longest_first,
    order_by_name,
    other_orders,
)
from oomproof.trace.tensorflow.roles import Roles, roles_of

KIB = 1 << 10


def node(name: str, op: str, *inputs: Ref, size: int = KIB, outputs: int = 1, controls: tuple[int, ...] = ()) -> Node:
    return Node(name, op, inputs, controls, (Output((size // 4,), "float32", size),) * outputs)


def names(graph: Graph, order: list[int]) -> list[str]:
    return [graph.nodes[number].name for number in order]


def run(graph: Graph, order: list[int] | None = None, on_gpu: bool = False) -> Timeline:
    builder = Builder()
    execution = Execution(builder, on_gpu=on_gpu)
    roles = Roles(["forward"] * len(graph.nodes), [each.name for each in graph.nodes])
    for each in graph.nodes:
        if each.op == "VarHandleOp":
            execution.hold_variable(each.name, KIB, kind="parameter", owner="")
    execution.prepare(graph, roles)
    execution.run(graph, gpu_order(graph) if order is None else order, roles, {})
    return builder.build()


# x feeds three kernels; one of them goes on to a chain.
FORK = Graph(
    (
        node("x", "MatMul"),
        node("a", "MatMul", (0, 0)),
        node("b", "MatMul", (0, 0)),
        node("c", "MatMul", (0, 0)),
        node("a2", "MatMul", (1, 0)),
        node("c2", "MatMul", (3, 0)),
    ),
    ((2, 0), (4, 0), (5, 0)),
)


def test_a_gpu_goes_through_one_queue() -> None:
    assert names(FORK, gpu_order(FORK)) == ["x", "a", "b", "c", "a2", "c2"]


def test_a_cpu_thread_keeps_the_last_kernel_and_takes_back_the_newest() -> None:
    assert names(FORK, cpu_order(FORK)) == ["x", "c", "c2", "b", "a", "a2"]


def test_the_longest_way_comes_first() -> None:
    assert names(FORK, longest_first(FORK)) == ["x", "a", "c", "b", "a2", "c2"]


def test_cheap_kernels_run_at_once() -> None:
    graph = Graph((FORK.nodes[0], node("r", "Reshape", (0, 0)), node("m", "MatMul", (0, 0))), ((1, 0), (2, 0)))
    assert names(graph, cpu_order(graph)) == ["x", "r", "m"]


def test_a_measured_order_is_kept_and_completed() -> None:
    assert names(FORK, order_by_name(FORK, ["c2", "unknown", "b"])) == ["x", "c", "c2", "b", "a", "a2"]


def test_what_begins_a_step_is_cheap_or_waits_for_the_thread() -> None:
    # Constants are gone through before the kernels that need none of them.
    nodes = (node("k", "MatMul"), node("c", "Const"), node("l", "MatMul"), node("m", "MatMul", (1, 0)))
    graph = Graph(nodes, ((0, 0), (2, 0), (3, 0)))
    assert names(graph, cpu_order(graph)) == ["c", "m", "l", "k"]
    assert names(graph, gpu_order(graph)) == ["k", "c", "l", "m"]


def test_a_node_that_merely_waits_is_seen_after_those_that_read() -> None:
    graph = Graph((node("x", "MatMul"), node("w", "NoOp", controls=(0,)), node("r", "Identity", (0, 0))), ((2, 0),))
    assert names(graph, gpu_order(graph)) == ["x", "r", "w"]


# Twelve constants, each read by a kernel of its own; the last constant is read by all of them.
WIDE = Graph(
    (*(node(f"c{n}", "Const") for n in range(12)), *(node(f"k{n}", "MatMul", (n, 0), (11, 0)) for n in range(12))),
    tuple((12 + n, 0) for n in range(12)),
)


def test_every_order_respects_what_depends_on_what() -> None:
    for graph in (FORK, WIDE):
        for on_gpu in (True, False):
            likely = likely_orders(graph, on_gpu=on_gpu)
            assert len(likely) == PROCESSES["gpu" if on_gpu else "cpu"]
            for order in (likely | other_orders(graph, on_gpu=on_gpu)).values():
                assert sorted(order) == list(range(len(graph.nodes)))
                for number, each in enumerate(graph.nodes):
                    assert all(order.index(source) < order.index(number) for source, _ in each.inputs)


def test_processes_differ_where_edges_are_in_tables() -> None:
    assert len({tuple(order) for order in likely_orders(FORK, on_gpu=False).values()}) == 1
    assert len({tuple(order) for order in likely_orders(WIDE, on_gpu=False).values()}) > 1
    assert likely_orders(WIDE, on_gpu=False) == likely_orders(WIDE, on_gpu=False)


def test_memory_goes_when_the_last_reader_has_run() -> None:
    # x and one result are alive at a time, and then two.
    graph = Graph((node("x", "MatMul"), node("y", "MatMul", (0, 0)), node("z", "MatMul", (1, 0))), ((2, 0),))
    assert run(graph).peak().bytes == 2 * KIB
    assert run(graph).curve()[-1] == 0


def test_a_kernel_writes_into_an_input_that_nobody_else_needs() -> None:
    chain = Graph((node("x", "MatMul"), node("y", "Relu", (0, 0)), node("z", "Relu", (1, 0))), ((2, 0),))
    assert run(chain).peak().bytes == KIB
    shared = Graph((*chain.nodes[:2], node("z", "MatMul", (0, 0)), node("s", "AddV2", (1, 0), (2, 0))), ((3, 0),))
    assert run(shared).peak().bytes == 3 * KIB  # y cannot be written into x, which z reads
    smaller = Graph((node("x", "MatMul"), node("y", "Relu", (0, 0), size=KIB // 2)), ((1, 0),))
    assert run(smaller).peak().bytes == KIB + KIB // 2  # nor is it where the sizes differ


def test_a_reshape_is_the_same_memory() -> None:
    graph = Graph((node("x", "MatMul"), node("r", "Reshape", (0, 0)), node("y", "MatMul", (1, 0))), ((2, 0),))
    assert run(graph).peak().bytes == 2 * KIB


def test_results_without_a_reader_go_at_once() -> None:
    graph = Graph((node("x", "Split", outputs=3), node("y", "MatMul", (0, 0))), ((1, 0),))
    assert run(graph).curve().tolist()[:5] == [KIB, 2 * KIB, 3 * KIB, 2 * KIB, KIB]


def handle(name: str) -> Node:
    return Node(name, "VarHandleOp", (), (), (Output((), "resource", 0),))


def test_an_update_copies_a_variable_that_is_still_read() -> None:
    def graph(late_reader: bool) -> Graph:
        read = node("read", "ReadVariableOp", (0, 0))
        step = Node("step", "AssignAddVariableOp", ((0, 0), (2, 0)))
        late = node("late", "MatMul", (1, 0), controls=(3,))
        nodes = (handle("w"), read, node("g", "MatMul", (1, 0)), step)
        return Graph((*nodes, late), ((4, 0),)) if late_reader else Graph(nodes, (), (3,))

    assert run(graph(False)).peak().bytes == 2 * KIB  # the variable and its gradient
    assert run(graph(True)).peak().bytes == 3 * KIB  # and a copy


def test_an_assignment_takes_the_memory_of_the_value() -> None:
    graph = Graph((handle("w"), node("new", "MatMul"), Node("set", "AssignVariableOp", ((0, 0), (1, 0)))), (), (2,))
    timeline = run(graph)
    assert timeline.peak().bytes == 2 * KIB
    assert timeline.curve()[-1] == KIB
    assert timeline.by_kind(timeline.ticks - 1)["parameter"] == KIB


def test_the_heavier_branch_is_taken() -> None:
    nodes = (
        node("x", "MatMul"),
        node("condition", "Equal", size=4),
        node("switch", "Switch", (0, 0), (1, 0), outputs=2),
        node("small", "MatMul", (2, 0)),
        node("large", "MatMul", (2, 1), size=4 * KIB),
        node("merge", "Merge", (3, 0), (4, 0)),
        node("after", "NoOp", controls=(3, 5)),
    )
    graph = take_branches(Graph(nodes, ((5, 0),), (6,)))
    assert [each.name for each in graph.nodes] == ["x", "condition", "switch", "large", "merge"]
    assert graph.results == ((4, 0),)
    assert run(graph).peak().bytes == 5 * KIB


def test_phases_and_kinds_follow_from_names_and_readers() -> None:
    nodes = (
        handle("w"),
        node("net/dense/read", "ReadVariableOp", (0, 0)),
        node("net/dense/matmul", "MatMul", (1, 0)),
        node("net/dense/relu", "Relu", (2, 0)),
        node("loss/mean", "Mean", (3, 0), size=4),
        node("gradient_tape/net/dense/relu/grad", "ReluGrad", (4, 0), (3, 0)),
        node("gradient_tape/net/dense/matmul/grad", "MatMul", (5, 0), (1, 0)),
        node("AddN", "AddN", (6, 0)),
        node("sgd/mul", "Mul", (7, 0)),
        Node("sgd/step", "AssignSubVariableOp", ((0, 0), (8, 0))),
    )
    graph = Graph(nodes, ((4, 0),), (9,))
    roles = roles_of(graph, {"net/dense": "dense"})
    assert roles.phase[2:] == ["forward"] * 3 + ["backward"] * 2 + ["optimizer"] * 3
    assert roles.kind((3, 0)) == "activation"
    assert roles.kind((2, 0)) == "temporary"
    assert roles.kind((6, 0)) == "gradient"
    assert roles.owner[2] == roles.owner[6] == "dense"
    assert roles.owner[8] == "(step)"
