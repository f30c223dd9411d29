"""Batches, arguments and outputs as they come: tensors in lists, tuples, named tuples, mappings and model outputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from copy import copy
from typing import Any

import torch

from oomproof.frameworks.torch import FakeTensor


def tensors_of(tree: Any, inside: tuple[int, ...] = ()) -> Iterator[torch.Tensor]:
    """Every tensor, in order; also those that are attributes of an object, such as an ImageList. What can be iterated
    only once is left alone. ``inside`` are the objects on the way here, which may hold each other."""
    if isinstance(tree, torch.Tensor):
        yield tree
        return
    if isinstance(tree, Mapping):
        branches: Iterable[Any] = tree.values()
    elif isinstance(tree, (list, tuple)):
        branches = tree
    elif hasattr(tree, "__dict__") and not isinstance(tree, (torch.nn.Module, type)) and not callable(tree):
        branches = list(vars(tree).values())
    else:
        return
    if id(tree) not in inside:
        for branch in branches:
            yield from tensors_of(branch, (*inside, id(tree)))


def map_tensors(change: Callable[[torch.Tensor], Any], tree: Any) -> Any:
    """The same tree with every tensor changed."""
    if isinstance(tree, torch.Tensor):
        return change(tree)
    if isinstance(tree, Mapping):
        return like_mapping(tree, {key: map_tensors(change, branch) for key, branch in tree.items()})
    if isinstance(tree, (list, tuple)):
        return like_sequence(tree, [map_tensors(change, branch) for branch in tree])
    return tree


def like_sequence(model: Sequence[Any], parts: list[Any]) -> Any:
    """A list, tuple or named tuple of the kind of ``model``."""
    kind: Any = type(model)
    return kind(*parts) if hasattr(model, "_fields") else kind(parts)


def like_mapping(model: Mapping[Any, Any], parts: dict[Any, Any]) -> Any:
    """A mapping of the kind of ``model``: dict, OrderedDict, a model output of transformers, a BatchEncoding."""
    if type(model) is dict:
        return parts
    if dataclasses.is_dataclass(model):
        return type(model)(**parts)
    if not isinstance(model, MutableMapping):
        return parts
    same = copy(model)  # keeps what the kind has besides its items, such as a default factory
    for key, part in parts.items():
        same[key] = part
    return same


def is_fake(tensor: torch.Tensor) -> bool:
    """A tensor under the tracer: it has a shape and no content to check anything with."""
    return isinstance(tensor, FakeTensor)
