"""All that oomproof uses of the torch-pruning library beyond its documented interface. Made for torch-pruning 1.6."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oomproof.errors import CannotDo
from oomproof.frameworks.versions import TORCH_PRUNING


def library() -> Any:
    """The library, which is optional, once it is known to have what is used of it."""
    try:
        import torch_pruning
    except ImportError as error:
        raise CannotDo("fewer channels need the torch-pruning library: pip install 'oomproof[prune]'") from error
    probe(torch_pruning)
    return torch_pruning


def probe(library: Any) -> None:
    graph = library.DependencyGraph
    TORCH_PRUNING.check((graph, "build_dependency"), (graph, "get_all_groups"), (graph, "get_pruning_group"))


def rename_parameters(graph: Any, new_of: Mapping[Any, Any]) -> None:
    """Puts other tensors in the place of parameters: where one is a node of the graph itself (outside of known layers),
    and in the graph's tables of names, which a graph has once it was built."""
    TORCH_PRUNING.check((graph, "_module2name"), (graph, "_param_to_name"))
    for old, new in new_of.items():
        if old in graph.module2node:
            graph.module2node[new] = node = graph.module2node.pop(old)
            node.module = new
            graph._module2name[new] = graph._module2name.pop(old)
        if old in graph._param_to_name:
            graph._param_to_name[new] = graph._param_to_name.pop(old)
