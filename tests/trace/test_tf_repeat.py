"""The graph of a step that goes from image to image, from two with few images, on graphs written by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from oomproof.trace.tensorflow.graph import repeat
from oomproof.trace.tensorflow.graph.graph import Graph, Node, Output, Ref
from oomproof.trace.tensorflow.graph.more_images import Extrapolation
from oomproof.trace.tensorflow.graph.parts import find_parts, kin_of, numbers_of
from oomproof.trace.tensorflow.graph.repeat import NotAlike, repeat_parts
from oomproof.trace.tensorflow.roles import roles_of, roles_of_copies

FEW, MORE = 2, 4


class Drawing:
    """A graph that is written node by node, as TensorFlow does it: names that are taken get a number."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.taken: dict[str, int] = {}

    def add(
        self, name: str, op: str, *inputs: Ref, shapes: Any = ((),), controls: tuple[int, ...] = (), value: Any = None
    ) -> Ref:
        count = self.taken.get(name, 0)
        self.taken[name] = count + 1
        outputs = []
        for shape in shapes:
            size = 4
            for side in shape:
                size *= side
            outputs.append(Output(shape, "float32", size))
        attrs = {} if value is None else {"value": value}
        numbered = f"{name}_{count}" if count else name
        self.nodes.append(Node(numbered, op, inputs, controls, tuple(outputs), attrs))
        return len(self.nodes) - 1, 0


def draw_step(images: int) -> Graph:
    """Regions drawn image after image (each draw waits for two guards of the one before, which read nothing), targets
    in a second loop with the same names, and gradients that come in the opposite order and are as large as the whole
    batch."""
    made = Drawing()
    given = made.add("images", "_Arg", shapes=((images, 64, 64),))
    features = made.add("net/Relu", "Relu", given, shapes=((images, 32, 32, 8),))
    count = made.add("count", "Const", shapes=((2,),), value=[images, 7])
    (split, _) = made.add("unstack", "Unpack", features, shapes=((32, 32, 8),) * images)
    drawn: list[Ref] = []
    before: tuple[int, ...] = ()
    for image in range(images):
        limit = made.add("loss/draw/limit", "Const", shapes=((16, 32),))
        squared = made.add("loss/Square", "Square", (split, image), shapes=((32, 32, 8),))
        drawn.append(made.add("loss/draw", "RandomUniform", squared, limit, shapes=((100, 4),), controls=before))
        guard, _ = made.add("loss/guard", "NoOp", shapes=(), controls=(drawn[-1][0],))
        before = (made.add("loss/guard", "NoOp", shapes=(), controls=(guard,))[0],)
    targets = [
        made.add("loss/Square", "Square", each, features, shapes=((100, images),)) for each in drawn
    ]  # the name again: two an image, in two loops
    stacked = made.add("loss/stack", "Pack", *drawn, shapes=((images, 100, 4),))
    pairs = [ref for pair in zip(drawn, targets, strict=True) for ref in pair]
    joined = made.add("loss/concat", "ConcatV2", *pairs, count, shapes=((images, 100, 5),))
    gradients: list[Ref] = []
    for image in reversed(range(images)):
        gradients.append(
            made.add("gradient_tape/loss/Grad", "Slice", targets[image], joined, shapes=((images, 32, 32, 8),))
        )
    total = made.add("gradient_tape/AddN", "AddN", *gradients, stacked, shapes=((images, 32, 32, 8),))
    update = made.add("update", "Sum", total, shapes=((3, 3, 8),), controls=tuple(ref[0] for ref in drawn))
    return Graph(tuple(made.nodes), (update,), targets=(drawn[-1][0], update[0]), arguments=(given[0],))


def describe_nodes(graph: Graph) -> list[int]:
    """What a node is, with all that it depends on: equal for equal nodes of equal graphs, whatever their order."""
    found: list[int] = []
    for node in graph.nodes:
        read = tuple((found[number], output) for number, output in node.inputs)
        waits = tuple(sorted(found[number] for number in node.controls))
        value = tuple(node.attrs.get("value", ()))
        found.append(hash((kin_of(node.name.split("_image_")[0], node.op), node.outputs, read, waits, value)))
    return found


@pytest.mark.parametrize("images", [5, 6, 16, 40])
def test_it_is_the_graph_that_would_have_been_built(images: int) -> None:
    made = repeat_parts(draw_step(FEW), draw_step(MORE), Extrapolation(FEW, MORE, images)).graph
    whole = draw_step(images)
    described, expected = describe_nodes(made), describe_nodes(whole)
    assert sorted(described) == sorted(expected)
    assert made.depth() == whole.depth()
    assert [described[number] for number, _ in made.results] == [expected[number] for number, _ in whole.results]
    assert [described[number] for number in made.targets] == [expected[number] for number in whole.targets]
    assert made.arguments == whole.arguments
    assert len({node.name for node in made.nodes}) == len(made.nodes)


def test_each_node_comes_after_what_it_depends_on() -> None:
    made = repeat_parts(draw_step(FEW), draw_step(MORE), Extrapolation(FEW, MORE, 9)).graph
    for number, node in enumerate(made.nodes):
        assert all(before < number for before in (*(ref[0] for ref in node.inputs), *node.controls))


def test_copies_have_the_roles_of_their_originals() -> None:
    few, more = draw_step(FEW), draw_step(MORE)
    made = repeat_parts(few, more, Extrapolation(FEW, MORE, 16))
    roles = roles_of_copies(roles_of(more, {"loss": "losses"}), made.graph, made.sources)
    expected = roles_of(draw_step(16), {"loss": "losses"})
    for name in ("phase", "owner"):
        assert sorted(getattr(roles, name)) == sorted(getattr(expected, name))
    assert sorted(roles.kinds.values()) == sorted(expected.kinds.values())


@pytest.mark.parametrize("odd", [1, 2])
def test_parts_that_differ_are_not_taken_for_one_another(odd: int) -> None:
    with pytest.raises(NotAlike):
        repeat_parts(draw_step(FEW), _with_other_inputs(draw_step(MORE), odd), Extrapolation(FEW, MORE, 16))


def _with_other_inputs(graph: Graph, odd: int) -> Graph:
    """The draw of one image reads the whole batch instead."""
    name = f"loss/draw_{odd}"
    nodes = [replace(node, inputs=((1, 0), *node.inputs[1:])) if node.name == name else node for node in graph.nodes]
    return replace(graph, nodes=tuple(nodes))


def test_a_part_that_another_process_built_in_another_order_is_refused() -> None:
    """What the API makes of a set of names: places of the two graphs do not go together."""
    few = draw_step(FEW)
    nodes = list(few.nodes)
    for number, node in enumerate(nodes):
        if node.op == "RandomUniform":
            nodes[number] = replace(node, outputs=(Output((100, 4, 1), "float32", 1600),))
    with pytest.raises(NotAlike):
        repeat_parts(replace(few, nodes=tuple(nodes)), draw_step(MORE), Extrapolation(FEW, MORE, 16))


def test_copies_that_do_not_wait_as_the_originals_do_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where what makes images wait for one another is lost, all copies would be there at once."""
    monkeypatch.setattr(
        repeat._Repeating, "_wait", lambda self, number, control, image, which: self._as_it_was(control)
    )  # fmt: skip
    few, more = (replace(each, targets=()) for each in (draw_step(FEW), draw_step(MORE)))
    with pytest.raises(NotAlike):
        repeat_parts(few, more, Extrapolation(FEW, MORE, 16))


def test_more_images_than_were_built_are_asked_for() -> None:
    with pytest.raises(ValueError, match="expected more of them"):
        repeat_parts(draw_step(FEW), draw_step(MORE), Extrapolation(FEW, MORE, 4))


def test_parts_are_told_by_what_they_read() -> None:
    """Both loops use one name, and gradients are numbered from the last image on."""
    graph = draw_step(MORE)
    _, parts = find_parts(draw_step(FEW), FEW, graph, MORE)
    image = {node.name: parts.image[number] for number, node in enumerate(graph.nodes)}
    assert [image[f"loss/Square{end}"] for end in ("", "_1", "_2", "_3", "_4", "_5", "_6", "_7")] == [*range(4)] * 2
    assert [image[f"gradient_tape/loss/Grad{end}"] for end in ("", "_1", "_2", "_3")] == [3, 2, 1, 0]
    assert {image[name] for name in ("net/Relu", "unstack", "loss/stack", "gradient_tape/AddN", "update")} == {None}


def test_names_without_a_number_come_first() -> None:
    assert kin_of("a_1/b/c_2_0/15326", "Add") == kin_of("a/b_7/c/9", "Add") == ("a/b/c/", "Add")
    names = ["a_1/b_2", "a/b_2", "a/b", "a_10/b", "a_2/b"]
    assert sorted(names, key=numbers_of) == ["a/b", "a/b_2", "a_1/b_2", "a_2/b", "a_10/b"]
