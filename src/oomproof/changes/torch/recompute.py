"""Activations that are computed again in backward instead of being kept: the ``checkpoint`` setting.

``none``; ``nonreentrant`` or ``reentrant``: all repeated blocks; or modules by path, ``PATH`` or ``PATH:N``. With
``:N`` a module runs N images at a time, and what comes after still sees the whole batch: gradients are the same for
any loss.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch.nn import SyncBatchNorm
from torch.utils.checkpoint import checkpoint

from oomproof.changes.torch.chunks import in_chunks, separate_images
from oomproof.changes.torch.trees import tensors_of
from oomproof.errors import CannotDo, InputError, JobError, did_you_mean
from oomproof.frameworks.torch import NormBase, own_buffers, own_parameters, version_of

EVERY_BLOCK = ("nonreentrant", "reentrant")


def recompute(model: torch.nn.Module, setting: str) -> list[str]:
    """Applies the setting to a model; returns the paths of the modules that are computed again."""
    if not isinstance(setting, str):
        raise InputError(f"checkpoint must be a text such as none or backbone.body.layer1:2; got {setting!r}")
    if setting == "none":
        return []
    if setting in EVERY_BLOCK:
        chosen = [(path, 0) for path in find_repeated_blocks(model)]
    else:
        chosen = parse_modules(model, setting)
    for path, chunk in chosen:
        module = model.get_submodule(path)
        module.forward = Recomputed(model, module, path, chunk, reentrant=setting == "reentrant")
    return [path for path, _ in chosen]


class Recomputed:
    """A module's forward that keeps only its inputs; its activations come again when backward needs them."""

    def __init__(
        self, model: torch.nn.Module, module: torch.nn.Module, path: str, chunk: int = 0, reentrant: bool = False
    ) -> None:
        self.model, self.module, self.path, self.chunk, self.reentrant = model, module, path, chunk, reentrant
        self.forward = module.forward
        self.checked = chunk == 0
        functools.update_wrapper(self, module.forward)

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        # The mode is the whole model's: a backbone that is held in evaluation mode is trained all the same.
        if not torch.is_grad_enabled() or not self.model.training:
            return self.forward(*inputs, **named)
        if not self.chunk:
            return self._once(*inputs, **named)
        if not self.checked:
            separate_images(self.path, self.module, self.forward, inputs, named)
            self.checked = True
        return in_chunks(self.path, self._once, self.chunk, inputs, named)

    def _once(self, *inputs: Any, **named: Any) -> Any:
        if self.reentrant and not any(isinstance(x, torch.Tensor) and x.requires_grad for x in inputs):
            raise CannotDo(
                f"checkpoint=reentrant would leave {self.path} without gradients, since what goes into it needs none "
                "(frozen layers before it); use checkpoint=nonreentrant"
            )
        before = self._versions(inputs, named)
        run = _SecondTimeUnnoticed(self.module, self.forward)
        outputs = checkpoint(run, *inputs, use_reentrant=self.reentrant, **named)
        self._refuse_changes(before, self._versions(inputs, named))
        return outputs

    def _versions(self, *inputs: Any) -> dict[str, tuple[int, ...]]:
        """How often what the module must find again as it was has been written to."""
        given = tuple(version_of(tensor) for tensor in tensors_of(inputs) if not tensor.is_inference())
        buffers = {
            f"{path}.{name}" if path else name: (version_of(buffer),)
            for path, module in self.module.named_modules()
            if not isinstance(module, NormBase)
            for name, buffer in own_buffers(module).items()
            if buffer is not None and not buffer.is_inference()
        }
        return {"": given, **buffers}

    def _refuse_changes(self, before: dict[str, tuple[int, ...]], after: dict[str, tuple[int, ...]]) -> None:
        for name, version in before.items():
            if after.get(name, version) != version:
                what = f"its buffer {name}" if name else "its own input in place"
                raise JobError(
                    f"checkpoint: {self.path} writes to {what} while it runs, so running it again would give something "
                    "else; leave it out of checkpoint, or name modules inside it"
                )


class _SecondTimeUnnoticed:
    """Runs a module as often as backward needs it; only the first run counts for running statistics."""

    def __init__(self, module: torch.nn.Module, forward: Callable[..., Any]) -> None:
        self.module, self.forward, self.again = module, forward, False

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        again, self.again = self.again, True
        with _statistics_kept(self.module) if again else nullcontext():
            return self.forward(*inputs, **named)


@contextmanager
def _statistics_kept(module: torch.nn.Module) -> Iterator[None]:
    """Normalisation layers compute as they do, and leave running statistics and their counter as they are."""
    norms = [norm for norm in module.modules() if isinstance(norm, NormBase) and norm.training]
    kept = [(norm, norm.momentum, norm.num_batches_tracked) for norm in norms]
    for norm, _, counter in kept:
        # With a momentum of 0 the new average is the old one. The statistics must be passed all the same: without them
        # the layer would save other tensors for backward than the first time, which checkpointing refuses.
        norm.momentum = 0.0
        wants_counter = isinstance(norm, SyncBatchNorm) and counter is not None  # it asserts that there is one
        own_buffers(norm)["num_batches_tracked"] = counter.clone() if wants_counter else None
    try:
        yield
    finally:
        for norm, momentum, counter in kept:
            norm.momentum, own_buffers(norm)["num_batches_tracked"] = momentum, counter


def find_repeated_blocks(model: torch.nn.Module) -> list[str]:
    """Paths of a network's repeated blocks: residual blocks, encoder layers."""
    chosen: list[str] = []
    for path, container in model.named_modules():
        if not isinstance(container, (torch.nn.Sequential, torch.nn.ModuleList)):
            continue
        kinds = [type(child) for child in container.children()]
        for name, child in container.named_children():
            inner = f"{path}.{name}" if path else name
            nested = any(inner.startswith(f"{outer}.") for outer in chosen)
            repeated = kinds.count(type(child)) > 1 and not isinstance(child, torch.nn.Sequential)
            if repeated and not nested and sum(1 for leaf in child.modules() if own_parameters(leaf)) > 1:
                chosen.append(inner)
    if not chosen:
        raise CannotDo(
            "checkpoint: this model has no repeated blocks in an nn.Sequential or nn.ModuleList to checkpoint; "
            "name modules by path (checkpoint=PATH,PATH), or leave checkpoint=none"
        )
    return chosen


def parse_modules(model: torch.nn.Module, setting: str) -> list[tuple[str, int]]:
    """``PATH`` and ``PATH:N``, comma-separated, as (path, images at a time or 0), checked against the model."""
    modules = dict(model.named_modules(remove_duplicate=False))
    chosen: dict[str, int] = {}
    for text in setting.split(","):
        path, colon, number = text.strip().partition(":")
        if not path or path not in modules:
            hint = did_you_mean(path, filter(None, modules), f"; it has {', '.join(dict(model.named_children()))}")
            raise CannotDo(f"checkpoint: the model has no module '{path}'{hint}")
        if colon and (not number.strip().isdecimal() or int(number) < 1):
            raise InputError(f"checkpoint: '{text.strip()}' must end in a number of images from 1 on, as in {path}:2")
        if type(modules[path]).forward is torch.nn.Module.forward:
            raise CannotDo(
                f"checkpoint: {path} is a {type(modules[path]).__name__}, which is never run itself; name modules in "
                f"it, such as {path}.{next(iter(dict(modules[path].named_children())), '0')}"
            )
        inside = {id(module) for module in modules[path].modules()}
        for other in chosen:
            if id(modules[other]) in inside or any(module is modules[path] for module in modules[other].modules()):
                raise CannotDo(f"checkpoint: {other} and {path} hold the same modules; name one of them")
        chosen[path] = int(number) if colon else 0
    return list(chosen.items())
