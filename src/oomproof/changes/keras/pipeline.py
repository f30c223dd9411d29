"""A tf.data pipeline with other buffer sizes, without touching the code that made it.

The dataset's graph is written out, the numbers in it are changed, and a dataset is made of it again: the same
transformations, functions and files. Python code inside (from_generator, py_function) goes on to work in this process.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from oomproof.errors import InputError, did_you_mean

KINDS = {
    "shuffle": (r"Shuffle(AndRepeat)?Dataset(V\d+)?", "buffer_size"),
    "prefetch": (r"PrefetchDataset", "buffer_size"),
    "map": (r"ParallelMapDataset(V\d+)?", "num_parallel_calls"),
    "interleave": (r"ParallelInterleaveDataset(V\d+)?", "num_parallel_calls"),
}
"""what may be changed: the operation's name in TensorFlow, and which of its inputs is the number"""
MAX_ARRAYS = 1 << 30


def rebuild_dataset(dataset: Any, settings: Mapping[str, int]) -> Any:
    """``dataset`` with ``settings``: {"shuffle": 500, "prefetch": 2, "map": 4}. Where there are several of a kind, the
    last in the code is ``shuffle``, the one before it ``shuffle_2``, and so on."""
    import tensorflow as tf

    from oomproof.frameworks.tensorflow import dataset_from, write_dataset

    if not settings:
        return dataset
    held = _arrays(dataset)
    if held > MAX_ARRAYS:
        raise InputError(
            f"the dataset holds arrays of {held >> 20} MiB, and making it again would copy them; expected at most "
            f"{MAX_ARRAYS >> 20} MiB: change {', '.join(map(describe_call, settings.items()))} where the pipeline is "
            "written"
        )
    graph = tf.compat.v1.GraphDef.FromString(write_dataset(dataset))
    places = _places(graph)
    for name, value in settings.items():
        if name not in places:
            meant = did_you_mean(name, places, f"; it has {', '.join(sorted(places)) or 'nothing to change'}")
            raise InputError(f"the dataset has no {name} with a size to set{meant}")
        if type(value) is not int or value == 0 or value < -1:
            raise InputError(f"{name}={value!r} is not a size; expected a whole number from 1 on, or -1 for AUTOTUNE")
        places[name].attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value, tf.int64))
    result = dataset_from(graph.SerializeToString(), dataset.element_spec).with_options(dataset.options())
    result.oomproof_made_of = dataset  # Python functions of the first live as long as it does
    return result


def sizes(dataset: Any) -> dict[str, int]:
    """The numbers that the dataset has now, by the names of ``rebuild_dataset``; its graph is not written for it."""
    import tensorflow as tf

    from oomproof.frameworks.tensorflow import inputs_of, read_size

    found: dict[str, int] = {}
    counts: dict[str, int] = {}

    def visit(each: Any) -> None:
        for kind, (operation, number) in KINDS.items():
            if re.fullmatch(operation, type(each).__name__.lstrip("_")):
                counts[kind] = counts.get(kind, 0) + 1
                value = tf.get_static_value(read_size(each, number))
                if value is not None:
                    found[kind if counts[kind] == 1 else f"{kind}_{counts[kind]}"] = int(value)
        for before in inputs_of(each):
            visit(before)

    visit(dataset)
    return found


def describe_call(change: tuple[str, int]) -> str:
    """A change as the call that a user would write."""
    name, value = change
    kind = name.partition("_")[0]
    shown = "tf.data.AUTOTUNE" if value == -1 else str(value)
    return f"{kind}(..., num_parallel_calls={shown})" if KINDS[kind][1] != "buffer_size" else f"{kind}({shown})"


def _places(graph: Any) -> dict[str, Any]:
    """The constants that hold the sizes, by name, the last of the pipeline first."""
    nodes = {node.name: node for node in graph.node}
    found: dict[str, Any] = {}
    counts: dict[str, int] = {}

    def visit(name: str) -> None:
        node = nodes[name.lstrip("^").partition(":")[0]]
        for kind, (operation, number) in KINDS.items():
            if re.fullmatch(operation, node.op):
                counts[kind] = counts.get(kind, 0) + 1
                constant = nodes[_input(node, number)]
                if constant.op == "Const":
                    found[kind if counts[kind] == 1 else f"{kind}_{counts[kind]}"] = constant
        for each in node.input:
            if "Dataset" in nodes[each.lstrip("^").partition(":")[0]].op:
                visit(each)

    for node in graph.node:
        if node.op == "_Retval":
            visit(node.input[0])
    return found


def _input(node: Any, name: str) -> str:
    """Sizes come first after the dataset, except where a function's own arguments lie between: there they are last."""
    place = 1 if name == "buffer_size" else -1
    return str(node.input[place]).lstrip("^").partition(":")[0]


def _arrays(dataset: Any) -> int:
    from oomproof.frameworks.tensorflow import find_held_tensors, inputs_of

    tensors = [each for each in find_held_tensors(dataset) if each.dtype.is_numpy_compatible]
    own: int = sum(int(each.shape.num_elements() or 0) * max(1, each.dtype.size) for each in tensors)
    return own + sum(_arrays(each) for each in inputs_of(dataset))
