"""TensorFlow's graph optimizer, run offline: the graph as the runtime would rewrite it before the first step.

For a GPU, one is described to it that need not exist. Layouts (NHWC to NCHW), fused operations and folded constants
then come out as they would there.
"""

from __future__ import annotations

from typing import Any

from oomproof.frameworks.quiet import silent
from oomproof.trace.tensorflow.graph.capture import ARGUMENTS, Captured

GPU = "/job:localhost/replica:0/task:0/device:GPU:0"
LOOPS = frozenset({"While", "StatelessWhile"})
CPU = "/job:localhost/replica:0/task:0/device:CPU:0"
PLENTY = 1 << 50
"""bytes of the GPU that is described. Where grappler thinks that a step exceeds its GPU, it has tensors copied to the
host and back (TensorFlow 2.21); a forecast is of the step without that, whatever the card"""


def run_grappler(captured: Captured, *, gpu: bool, capability: str = "8.0") -> Any:
    """The GraphDef after TensorFlow's default passes. ``capability`` decides which layouts a GPU is thought to like."""
    from tensorflow.errors import InvalidArgumentError

    from oomproof.frameworks.tensorflow import ConfigProto, MetaGraphDef, optimize_graph

    whole = MetaGraphDef()
    whole.graph_def.CopyFrom(captured.definition)
    for node in whole.graph_def.node:
        node.device = GPU if gpu else CPU
    for node in [*whole.graph_def.node, *(node for each in whole.graph_def.library.function for node in each.node_def)]:
        if node.op in LOOPS:  # a loop that is one node is easier to go through than one made of cycles
            node.attr["_lower_using_switch_merge"].b = False
    # Arguments stay, even where nothing reads them, as they do at run time.
    arguments = [node.name for node in captured.definition.node if node.op in ARGUMENTS]
    whole.collection_def["train_op"].node_list.value.extend(
        dict.fromkeys([*captured.results, *arguments, *captured.targets])
    )
    config = ConfigProto()
    # By default, graphs of a few nodes are left alone; the runtime has no such threshold for functions.
    config.graph_options.rewrite_options.min_graph_nodes = -1
    cluster = _cluster(gpu, capability)
    with silent():
        try:
            return optimize_graph(config, whole, verbose=False, cluster=cluster)
        except InvalidArgumentError:
            # One of the passes refuses branches of different shapes (TensorFlow 2.21), which run all the same.
            config.graph_options.rewrite_options.disable_tfg_optimizer = True
            return optimize_graph(config, whole, verbose=False, cluster=cluster)


def _cluster(gpu: bool, capability: str) -> Any:
    from oomproof.frameworks.tensorflow import Cluster, NamedDevice

    cpu = NamedDevice(name=CPU)
    cpu.properties.type, cpu.properties.frequency, cpu.properties.num_cores = "CPU", 2000, 4
    devices = [cpu]
    if gpu:
        card = NamedDevice(name=GPU)
        about = card.properties
        about.type, about.vendor, about.model = "GPU", "NVIDIA", "a GPU"
        about.frequency, about.num_cores, about.memory_size, about.bandwidth = 1500, 80, PLENTY, 900_000_000
        for name, value in (("architecture", capability), ("cuda", "12050"), ("cudnn", "9030")):
            about.environment[name] = value
        devices.insert(0, card)
    return Cluster(devices=devices, disable_timeline=True)
