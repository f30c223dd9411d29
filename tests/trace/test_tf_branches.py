"""Of two branches the one that makes more memory stays: held against trying both ways of every condition on the whole
graph."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from oomproof.trace.tensorflow.graph.branches import MERGES, SWITCHES, take_branches
from oomproof.trace.tensorflow.graph.graph import Graph, Node, Output, Ref


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Two conditions and more, nested or not, with joins and controls anywhere."""
    nodes: list[Node] = [Node("a", "Const", outputs=(Output((), "bool", 1),)) for _ in range(draw(st.integers(1, 3)))]
    conditions = len(nodes)
    for number in range(draw(st.integers(3, 24))):
        op = draw(st.sampled_from(("Switch", "Merge", "Add", "Add")))

        def some() -> Ref:
            source = draw(st.integers(0, len(nodes) - 1))
            return source, draw(st.integers(0, len(nodes[source].outputs) - 1))

        if op == "Switch":
            inputs: tuple[Ref, ...] = (some(), (draw(st.integers(0, conditions - 1)), 0))
        else:
            inputs = tuple(some() for _ in range(draw(st.integers(1, 2))))
        controls = tuple(draw(st.lists(st.integers(0, len(nodes) - 1), max_size=1)))
        outputs = (Output((), "float32", draw(st.integers(0, 9))),) * (2 if op == "Switch" else 1)
        nodes.append(Node(f"{op}{number}", op, inputs, controls, outputs))
    return Graph(tuple(nodes), ((len(nodes) - 1, 0),))


def names_that_run(graph: Graph) -> list[str]:
    """Every node is looked at anew for both ways of every condition."""
    conditions = list(dict.fromkeys(node.inputs[1] for node in graph.nodes if node.op in SWITCHES))
    ways = dict.fromkeys(conditions, 1)

    def running(ways: dict[Ref, int]) -> list[Node]:
        dead: list[bool] = []
        for node in graph.nodes:
            sources = [graph.nodes[at] for at, _ in node.inputs]
            gone = [
                dead[at] or (source.op in SWITCHES and output != ways[source.inputs[1]])
                for (at, output), source in zip(node.inputs, sources, strict=True)
            ]
            dead.append(all(gone) if node.op in MERGES else any(gone) or any(dead[at] for at in node.controls))
        return [node for node, gone in zip(graph.nodes, dead, strict=True) if not gone]

    def made(ways: dict[Ref, int]) -> int:
        return sum(each.bytes for node in running(ways) if node.op not in SWITCHES | MERGES for each in node.outputs)

    for condition in conditions:
        ways[condition] = max((1, 0), key=lambda way: made({**ways, condition: way}))
    return [node.name for node in running(ways)]


@given(graphs())
@settings(max_examples=300, deadline=None)
def test_the_same_branches_stay_as_by_trying_all(graph: Graph) -> None:
    assert [node.name for node in take_branches(graph).nodes] == names_that_run(graph)
