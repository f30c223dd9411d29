"""The graph of a step with many images, from two with few, on graphs written by hand."""

from __future__ import annotations

from typing import Any

from oomproof.trace.tensorflow.graph.graph import Graph, Node, Output, Ref
from oomproof.trace.tensorflow.graph.more_images import Extrapolation, with_more_images
from oomproof.trace.tensorflow.work import Workbook

FLOAT = 4


def node(
    name: str, op: str, *inputs: Ref, shapes: tuple[tuple[int, ...], ...], attrs: Any = None, bodies: Any = ()
) -> Node:
    outputs = []
    for shape in shapes:
        size = FLOAT
        for side in shape:
            size *= side
        outputs.append(Output(shape, "float32", size))
    return Node(name, op, inputs, (), tuple(outputs), attrs or {}, bodies)


def step(images: int) -> Graph:
    """A layer, its weights' gradient, and a part for every image between unpacking and packing: names get counters."""
    nodes = [
        node("images", "_Arg", shapes=((images, 30, 40),)),
        node("layer_1/Relu", "Relu", (0, 0), shapes=((images, 15, 20, 8),)),
        node("count", "Const", shapes=((2,),), attrs={"value": [images, 8]}),
        node("unstack", "Unpack", (1, 0), shapes=((15, 20, 8),) * images),
    ]
    for image in range(images):
        suffix = f"_{image}" if image else ""
        nodes.append(node(f"assign/Square{suffix}", "Square", (3, image), shapes=((15, 20, 8),)))
    squares = tuple((4 + image, 0) for image in range(images))
    # In the scope of the images' own parts, so that its number depends on how many there are.
    nodes.append(node(f"assign/stack_{images}", "Pack", *squares, shapes=((images, 15, 20, 8),)))
    nodes.append(node("gradient", "Sum", (4 + images, 0), shapes=((3, 3, 1, 8),)))
    return Graph(tuple(nodes), ((5 + images, 0),), arguments=(0,))


def bytes_by_op(graph: Graph) -> dict[str, int]:
    found: dict[str, int] = {}
    for each in graph.nodes:
        found[each.op] = found.get(each.op, 0) + sum(output.bytes for output in each.outputs)
    return found


def test_it_holds_what_the_whole_step_would() -> None:
    for images in (5, 24, 512):
        made = with_more_images(step(2), step(4), Extrapolation(2, 4, images))
        whole = step(images)
        assert bytes_by_op(made) == bytes_by_op(whole)
        assert len(made.nodes) == len(step(4).nodes)
        by_name = {each.name: each for each in made.nodes}
        assert by_name["images"].outputs == whole.nodes[0].outputs, "sides too: convolutions are priced by them"
        assert by_name["layer_1/Relu"].outputs == whole.nodes[1].outputs
        assert by_name["count"].attrs["value"] == [images, 8], "a number of turns, or of elements"
        assert by_name["gradient"].outputs == whole.nodes[-1].outputs, "weights do not grow"


def test_a_loops_body_grows_too() -> None:
    def loop(images: int) -> Graph:
        inside = Graph((node("in", "_Arg", shapes=((images, 7),)),), ((0, 0),), arguments=(0,))
        return Graph((node("while", "While", shapes=((images, 7),), bodies=(inside, inside)),), ((0, 0),))

    made = with_more_images(loop(2), loop(4), Extrapolation(2, 4, 100))
    assert made == loop(100)


def test_as_many_kernels_are_launched() -> None:
    book, whole = Workbook(), Workbook()
    for graph, into in ((with_more_images(step(2), step(4), Extrapolation(2, 4, 24)), book), (step(24), whole)):
        for each in graph.nodes:
            into.note(0, "net", "forward", graph, each)
    assert len(book.rows) == len(whole.rows)
    assert [sum(row[place] for row in book.rows) for place in (3, 4)] == [
        sum(row[place] for row in whole.rows) for place in (3, 4)
    ]


def test_what_only_the_larger_step_has_grows_with_the_batch() -> None:
    extra = Graph((node("late", "Square", shapes=((4, 5),)),), ((0, 0),))
    made = with_more_images(Graph((), ()), extra, Extrapolation(2, 4, 40))
    assert made.nodes[0].outputs[0] == Output((40, 5), "float32", 800)


def test_how_deep_a_graph_is() -> None:
    assert step(2).depth() == step(4).depth() == 6
    assert Graph((), ()).depth() == 0
