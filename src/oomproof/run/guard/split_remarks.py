"""What is done once a batch in an unsplit step, and once a micro-batch in a split one: gradients add up all the same,
and this does not. It is told, since nothing can be done about it from outside."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from oomproof.frameworks.torch import BatchNormBase, NormBase, hooks_after_gradient, hooks_on_gradient
from oomproof.run.guard.before_step import BeforeStep

_SHOWN = 3


def has_batch_statistics(model: torch.nn.Module) -> bool:
    """Whether images of a batch meet in normalisation: then a split batch is another computation. A layer without
    running statistics uses the batch's in evaluation mode too."""
    return any(
        isinstance(module, BatchNormBase) and (module.training or module.running_mean is None)
        for module in model.modules()
    )


def find_split_remarks(model: torch.nn.Module, before: BeforeStep) -> Iterator[str]:
    """After a step that was split."""
    hooked = [name for name, p in model.named_parameters() if hooks_on_gradient(p) or hooks_after_gradient(p)]
    if hooked:
        yield (
            f"hooks on gradients ({_list_some(hooked)}) see those of every micro-batch, not the batch's: one that "
            "clips or counts makes another training; clip in guard.step(batch, loss, before_update=...)"
        )
    written = [name for name, module, buffer in before.written_buffers() if _is_told(module, buffer)]
    if written:
        yield (
            f"buffers that forward passes write to ({_list_some(written)}) are written to by every micro-batch, not "
            "once a batch: counts and running means differ from those of whole batches"
        )


def _is_told(module: torch.nn.Module, buffer: str) -> bool:
    """Batch normalisation has a line of its own; other running statistics are written where they are trained."""
    if isinstance(module, BatchNormBase):
        return False
    return not isinstance(module, NormBase) or module.training


def _list_some(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
