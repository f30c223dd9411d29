"""All that oomproof uses of TensorFlow beyond its documented interface, each thing under a plain name.

Made for TensorFlow 2.16 to 2.21; every name was last looked at in 2.21 and tried in 2.16.1. A version that lacks one
is told when this file is imported, which is where TensorFlow is first used. Operations of a graph whose names begin
with an underscore (``_Arg``) are compared by name alone, and are not here.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from oomproof.frameworks.versions import TENSORFLOW

with TENSORFLOW.names_needed():
    from tensorflow.core.function import trace_type  # which arguments make a tf.function trace another graph
    from tensorflow.core.protobuf.config_pb2 import ConfigProto  # what the runtime is set to
    from tensorflow.core.protobuf.device_properties_pb2 import NamedDevice  # a device as the optimizer sees it
    from tensorflow.core.protobuf.meta_graph_pb2 import MetaGraphDef  # a graph with what is to be kept of it
    from tensorflow.python.data.ops.dataset_ops import _VariantDataset
    from tensorflow.python.data.ops.options import ExternalStatePolicy
    from tensorflow.python.eager.polymorphic_function.tracing_compilation import TracingOptions, trace_function
    from tensorflow.python.eager.record import stop_recording  # inside, no tape sees operations
    from tensorflow.python.framework.config import is_op_determinism_enabled
    from tensorflow.python.framework.function_def_to_graph import function_def_to_graph
    from tensorflow.python.framework.op_def_registry import get as operation_definition  # an OpDef by its name, or None
    from tensorflow.python.framework.tensor_util import MakeNdarray as array_of  # a constant's content
    from tensorflow.python.grappler.cluster import Cluster  # the machine that a graph is optimized for
    from tensorflow.python.grappler.tf_optimizer import OptimizeGraph as optimize_graph  # grappler, run offline


def probe() -> None:
    """Looks for what belongs to objects rather than modules, so that no import misses it."""
    TENSORFLOW.check(
        (tf.data.Dataset, "_inputs"),
        (tf.data.Dataset, "_as_serialized_graph"),
    )


def trace_once(function: Any, arguments: tuple[Any, ...]) -> Any:
    """The ConcreteFunction of a function. A tf.function whose variables are made while it is traced is traced twice;
    here they are made as usual, outside, where Keras puts them."""
    return trace_function(arguments, {}, TracingOptions(function, "step", autograph=False, bind_graph_to_function=True))


def write_dataset(dataset: Any) -> bytes:
    """The graph of a dataset as a serialized GraphDef; Python functions in it go on to work in this process."""
    written: bytes = dataset._as_serialized_graph(external_state_policy=ExternalStatePolicy.IGNORE).numpy()
    return written


def dataset_from(graph: bytes, element_spec: Any) -> Any:
    """The dataset that such a graph describes."""
    return _VariantDataset(tf.raw_ops.DatasetFromGraph(graph_def=graph), element_spec)


def inputs_of(dataset: Any) -> list[Any]:
    """The datasets that a dataset is made of."""
    return list(dataset._inputs())


def file_of(dataset: Any) -> Any:
    """The file that a cache() goes to, as a tensor of text; empty where it stays in memory."""
    return dataset._filename


def function_of(dataset: Any) -> Any:
    """The function that a map(), filter() or interleave() calls for each element; None where there is none."""
    return getattr(getattr(dataset, "_map_func", None), "function", None)


def within_adapter(dataset: Any) -> Any:
    """The dataset that one of TensorFlow 1's interface is put around."""
    return getattr(dataset, "_dataset", dataset) if type(dataset).__name__ == "DatasetV1Adapter" else dataset


def functions_in(graph: Any) -> list[Any]:
    """The functions that a graph calls, as far as it holds them."""
    return list(getattr(graph, "_functions", {}).values())


def relaxes_shapes(function: Any) -> bool:
    """Whether a tf.function was made with reduce_retracing=True."""
    return bool(getattr(function, "_reduce_retracing", False))


def list_traced_graphs(function: Any) -> list[Any]:
    """The graphs that a tf.function has been traced to so far."""
    return list(function._list_all_concrete_functions())


def read_size(dataset: Any, name: str) -> Any:
    """A number that a dataset was made with (``batch_size``, ``buffer_size``), as a tensor; None where it has none."""
    return getattr(dataset, f"_{name}", None)


def input_of(dataset: Any) -> Any:
    """The one dataset that a dataset is made of; None where there is none, or several."""
    return getattr(dataset, "_input_dataset", None)


def find_held_tensors(dataset: Any) -> tuple[Any, ...]:
    """Of from_tensors and from_tensor_slices."""
    return tuple(getattr(dataset, "_tensors", ()))


def handle_data_of(handle: Any) -> Any:
    """What a resource handle says of the variable behind it: shapes and types; None where it says nothing."""
    return getattr(handle, "_handle_data", None)


def parse_hlo(data: bytes) -> Any:
    """An HloProto: a program of XLA with the memory that its compiler planned for it."""
    with TENSORFLOW.names_needed():
        from tensorflow.compiler.xla.service import hlo_pb2
    return hlo_pb2.HloProto.FromString(data)


def parse_hlo_module(written: bytes) -> Any:
    """An HloModuleProto, XLA's form of a program."""
    with TENSORFLOW.names_needed():
        from tensorflow.compiler.xla.service import hlo_pb2
    return hlo_pb2.HloModuleProto.FromString(written)


probe()

__all__ = [
    "Cluster",
    "ConfigProto",
    "MetaGraphDef",
    "NamedDevice",
    "array_of",
    "dataset_from",
    "file_of",
    "find_held_tensors",
    "function_def_to_graph",
    "function_of",
    "functions_in",
    "handle_data_of",
    "input_of",
    "inputs_of",
    "is_op_determinism_enabled",
    "list_traced_graphs",
    "operation_definition",
    "optimize_graph",
    "parse_hlo",
    "parse_hlo_module",
    "probe",
    "read_size",
    "relaxes_shapes",
    "stop_recording",
    "trace_once",
    "trace_type",
    "within_adapter",
    "write_dataset",
]  # fmt: skip
