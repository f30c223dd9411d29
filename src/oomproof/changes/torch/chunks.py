"""A module that runs a few images at a time, and the check that this gives the same as running them all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from oomproof.changes.torch.trees import is_fake, like_mapping, like_sequence, map_tensors, tensors_of
from oomproof.errors import CannotDo, JobError
from oomproof.frameworks.torch import BatchNormBase

_CLOSE = {torch.float16: 3e-2, torch.bfloat16: 3e-2}
_CLOSE_FLOAT = 1e-3
"""Relative differences that rounding explains: a GPU takes other kernels for one image than for two, in TF32 too.
A module in which images see each other differs by far more."""


def in_chunks(path: str, run: Callable[..., Any], size: int, inputs: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    """``run`` on ``size`` images at a time, the outputs joined again."""
    images = _images(path, (inputs, named))
    if images <= size:
        return run(*inputs, **named)
    sizes = [min(size, images - first) for first in range(0, images, size)]
    chunks = _split((inputs, dict(named)), images, sizes)
    return _join_chunks(path, [run(*some, **more) for some, more in chunks], sizes)


def separate_images(
    path: str, module: torch.nn.Module, forward: Callable[..., Any], inputs: tuple[Any, ...], named: Mapping[str, Any]
) -> None:
    """Refuses a module that does not treat images one by one. On real tensors this is tried on two images; which layers
    can mix images is known without."""
    for name, layer in module.named_modules():
        if isinstance(layer, BatchNormBase) and layer.training:
            raise CannotDo(
                f"checkpoint: {path} cannot run a few images at a time, since {f'{path}.{name}'.rstrip('.')} "
                "normalises over the whole batch; set freeze_batchnorm=true, or leave out the number after the colon"
            )
    images = _images(path, (inputs, named))
    if images < 2 or any(is_fake(tensor) for tensor in tensors_of((inputs, dict(named)))):
        return
    pair = _split((inputs, dict(named)), images, [2, images - 2] if images > 2 else [2])[0]
    generators = _generators((inputs, dict(named)))
    with torch.no_grad(), _autocast_cache_off(), _in_evaluation_mode(module), torch.random.fork_rng(generators):
        together = forward(*pair[0], **pair[1])
        alone = _join_chunks(path, [forward(*some, **more) for some, more in _split(pair, 2, [1, 1])], [1, 1])
    expected, found = list(tensors_of(together)), list(tensors_of(alone))
    if len(expected) != len(found) or not all(_close(*two) for two in zip(expected, found, strict=True)):
        raise JobError(
            f"checkpoint: {path} gives other results for images one by one than for two together, so it cannot run a "
            "few at a time; name a module that treats images separately (a backbone), or leave out the number"
        )


@contextmanager
def _autocast_cache_off() -> Iterator[None]:
    """Autocast keeps the weights that it has cast until it is left. Of those that were cast without gradients, PyTorch
    2.4 to 2.8 would give them none in the forward pass that follows."""
    cached = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(cached)


def _images(path: str, tree: Any) -> int:
    first = next((tensor for tensor in tensors_of(tree) if tensor.dim()), None)
    if first is None:
        raise JobError(f"checkpoint: {path} is not given a tensor, so images cannot be told apart; leave out the :N")
    return int(first.shape[0])


def _split(tree: Any, images: int, sizes: list[int]) -> list[Any]:
    """One tree for each chunk; tensors that have no row for each image go to every one as they are."""
    pieces: dict[int, Sequence[torch.Tensor]] = {}

    def chunk(place: int) -> Any:
        def part(tensor: torch.Tensor) -> torch.Tensor:
            if tensor.dim() == 0 or tensor.shape[0] != images:
                return tensor
            # One split for all chunks: its backward joins their gradients in one copy.
            if id(tensor) not in pieces:
                pieces[id(tensor)] = tensor.split(sizes)
            return pieces[id(tensor)][place]

        return map_tensors(part, tree)

    return [chunk(place) for place in range(len(sizes))]


def _join_chunks(path: str, parts: list[Any], sizes: list[int]) -> Any:
    first = parts[0]
    if isinstance(first, torch.Tensor):
        if any(part.dim() == 0 or part.shape[0] != size for part, size in zip(parts, sizes, strict=True)):
            raise JobError(
                f"checkpoint: {path} returns a tensor of shape {tuple(first.shape)} for {sizes[0]} images, so chunks "
                "cannot be joined again; leave out the number after the colon"
            )
        return torch.cat(parts)
    if isinstance(first, Mapping):
        return like_mapping(first, {key: _join_chunks(path, [part[key] for part in parts], sizes) for key in first})
    if isinstance(first, (list, tuple)):
        return like_sequence(first, [_join_chunks(path, list(each), sizes) for each in zip(*parts, strict=True)])
    if any(part is not first and part != first for part in parts[1:]):
        raise JobError(
            f"checkpoint: {path} returns a {type(first).__name__} that differs from chunk to chunk and cannot be "
            "joined; leave out the number after the colon"
        )
    return first


def _close(expected: torch.Tensor, found: torch.Tensor) -> bool:
    if expected.shape != found.shape or expected.dtype != found.dtype:
        return False
    if not expected.is_floating_point():
        return bool(torch.equal(expected, found))
    allowed = _CLOSE.get(expected.dtype, _CLOSE_FLOAT)
    scale = expected.float().norm()
    # Where the net has overflowed there is nothing to compare.
    apart = (expected.float() - found.float()).norm()
    return bool((apart <= allowed * scale).item()) or not bool(torch.isfinite(scale).item())


def _generators(tree: Any) -> list[torch.device]:
    return list({tensor.device for tensor in tensors_of(tree) if tensor.device.type == "cuda"})


@contextmanager
def _in_evaluation_mode(module: torch.nn.Module) -> Iterator[None]:
    """Evaluation mode, and afterwards every layer in the mode it was in."""
    modes = {layer: layer.training for layer in module.modules()}
    for layer in modes:
        layer.training = False
    try:
        yield
    finally:
        for layer, mode in modes.items():
            layer.training = mode
