"""What becomes a constant before the first step, on graphs written by hand."""

from __future__ import annotations

from oomproof.trace.tensorflow.graph.folding import LARGEST, fold_constants
from oomproof.trace.tensorflow.graph.graph import Graph, Node, Output, Ref


def node(name: str, op: str, *inputs: Ref, size: int = 4, outputs: int = 1, controls: tuple[int, ...] = ()) -> Node:
    return Node(name, op, inputs, controls, (Output((size // 4,), "float32", size),) * outputs)


def fold(graph: Graph) -> Graph:
    return fold_constants(graph, lambda op: op != "RandomUniform")


def test_what_follows_from_constants_is_one() -> None:
    nodes = (
        node("c", "Const"),
        node("double", "Mul", (0, 0), (0, 0)),
        node("parts", "Split", (1, 0), size=8, outputs=3),
        node("x", "Placeholder"),
        node("sum", "AddV2", (3, 0), (2, 1)),
        node("end", "NoOp", controls=(1, 4)),
    )
    graph = fold(Graph(nodes, ((4, 0), (2, 2)), (5,), (3,)))
    assert [(each.name, each.op) for each in graph.nodes] == [
        ("parts", "Const"),
        ("parts", "Const"),
        ("x", "Placeholder"),
        ("sum", "AddV2"),
        ("end", "NoOp"),
    ]
    assert graph.nodes[3].inputs == ((2, 0), (0, 0))
    assert graph.nodes[4].controls == (3,)
    assert (graph.results, graph.targets, graph.arguments) == (((3, 0), (1, 0)), (4,), (2,))
    assert graph.nodes[0].outputs[0].bytes == 8


def test_what_may_change_or_is_large_is_computed_in_every_step() -> None:
    for kept in (
        node("noise", "RandomUniform", (0, 0)),
        node("large", "Fill", (0, 0), size=LARGEST + 4),
        node("way", "Switch", (0, 0), (0, 0), outputs=2),
        node("late", "Neg", (0, 0), controls=(1,)),
    ):
        graph = Graph((node("c", "Const"), node("x", "Placeholder"), kept), ((2, 0),), (), (1,))
        assert fold(graph) is graph


def test_a_constant_that_waits_is_no_constant() -> None:
    nodes = (node("x", "Placeholder"), node("c", "Const", controls=(0,)), node("y", "Neg", (1, 0)))
    graph = Graph(nodes, ((2, 0),), (), (0,))
    assert fold(graph) is graph
