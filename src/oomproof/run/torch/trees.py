"""Batches, arguments and outputs as they come: tensors in lists, tuples, named tuples, mappings and model outputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from copy import copy
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor


def tensors_of(tree: Any) -> Iterator[torch.Tensor]:
    """Every tensor, in order."""
    if isinstance(tree, torch.Tensor):
        yield tree
    elif isinstance(tree, Mapping):
        for branch in tree.values():
            yield from tensors_of(branch)
    elif isinstance(tree, (list, tuple)):
        for branch in tree:
            yield from tensors_of(branch)


def mapped(change: Callable[[torch.Tensor], Any], tree: Any) -> Any:
    """The same tree with every tensor changed."""
    if isinstance(tree, torch.Tensor):
        return change(tree)
    if isinstance(tree, Mapping):
        return like_mapping(tree, {key: mapped(change, branch) for key, branch in tree.items()})
    if isinstance(tree, (list, tuple)):
        return like_sequence(tree, [mapped(change, branch) for branch in tree])
    return tree


def like_sequence(model: Sequence[Any], parts: list[Any]) -> Any:
    """A list, tuple or named tuple of the kind of ``model``."""
    return type(model)(*parts) if hasattr(model, "_fields") else type(model)(parts)  # type: ignore[call-arg]


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
