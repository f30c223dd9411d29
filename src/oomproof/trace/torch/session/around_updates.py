"""What a script does with every update besides updating: where that is so, its batch cannot be cut into micro-batches
from outside, because it would be done with every one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch.nn.utils import clip_grad
from torch.optim import lr_scheduler


class AroundUpdates:
    """``seen`` has it in words."""

    def __init__(self) -> None:
        self.seen: set[str] = set()

    @contextmanager
    def updates_watched(self, updates: Callable[[], int]) -> Iterator[None]:
        """``updates`` says how many there were so far."""
        with ExitStack() as stack:
            for name in ("clip_grad_norm_", "clip_grad_value_"):
                clip = self._make_noting("gradients are clipped", getattr(clip_grad, name))
                for module in (clip_grad, torch.nn.utils):
                    stack.enter_context(patch.object(module, name, clip))
            schedule = lr_scheduler.LRScheduler.step

            def schedule_watched(scheduler: Any, *args: Any, **kwargs: Any) -> Any:
                if updates():  # the first is a scheduler's own
                    self.seen.add("the learning rate follows single steps")
                return schedule(scheduler, *args, **kwargs)

            stack.enter_context(patch.object(lr_scheduler.LRScheduler, "step", schedule_watched))
            yield

    def _make_noting(self, what: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call_noted(*args: Any, **kwargs: Any) -> Any:
            self.seen.add(what)
            return function(*args, **kwargs)

        return call_noted
