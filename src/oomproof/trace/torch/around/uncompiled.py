"""``torch.compile`` while a step is traced: what is compiled runs as if it were not.

The compiler would trace fake tensors once more, and fuse what the tracer wants to see.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch

from oomproof.frameworks.torch import DYNAMO, running_eagerly, unwrap_compiled

NOTE = "torch.compile is left out: forecast as if the model ran without it; compiled steps mostly take less"


@contextmanager
def without_compiling(see_mode: Callable[[Any], None] = lambda mode: None) -> Iterator[list[str]]:
    """Yields a list that holds NOTE once something would have been compiled; ``see_mode`` is told in which mode. To be
    entered before a stand-in takes the compiler's place (without_dynamo.py)."""
    noted: list[str] = []

    def compile_nothing(model: Any = None, *_: Any, **named: Any) -> Any:
        noted[:] = [NOTE]
        see_mode(named.get("mode"))
        return model if model is not None else lambda each: each

    with ExitStack() as stack:
        stack.enter_context(patch.object(torch, "compile", compile_nothing))
        stack.enter_context(patch.object(torch.nn.Module, "compile", compile_nothing))
        if DYNAMO in sys.modules:  # something may be compiled already
            stack.enter_context(running_eagerly())
        yield noted


def unwrap_factory(make: Callable[[], Any], noted: list[str]) -> Callable[[], Any]:
    """A model factory whose model is the one inside what ``torch.compile`` has made of it."""

    def model() -> Any:
        made = make()
        inner = unwrap_compiled(made)
        if inner is not made:
            noted[:] = [NOTE]
        return inner

    return model
