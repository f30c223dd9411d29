"""Which errors mean that memory ran out, and what is freed then."""

from __future__ import annotations

import ctypes
import gc
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

# Of PyTorch 2.4 to 2.14: its own words, and those of libraries that it hands on without changing the type.
_WORDS = re.compile(
    r"out of memory|can't allocate memory|not enough memory|_STATUS_ALLOC_FAILED|std::bad_alloc|"
    r"Cannot allocate memory|Unable to allocate|could not (?:create|execute) a primitive|Failed to allocate",
    re.IGNORECASE,
)
_ASKED = re.compile(r"[Tt]ried to allocate ([\d.]+ ?\w*)")
_TYPES: tuple[type[BaseException], ...] = (MemoryError, torch.cuda.OutOfMemoryError)


@dataclass(frozen=True)
class CaughtFailure:
    """A place where memory ran out, as text: the error itself would keep tensors alive."""

    doing: str
    text: str
    besides: str = ""
    """why the step cannot be begun again, if there is a reason"""
    intact: bool = True
    """whether parameters are as before the step"""
    whole: str = ""
    """why the batch cannot be split, if it cannot"""

    @property
    def asked(self) -> str:
        """«2.00 GiB asked for», or an empty text."""
        found = _ASKED.search(self.text)
        return f"{found[1]} asked for" if found else ""


def is_out_of_memory(error: BaseException) -> bool:
    return any(
        isinstance(each, _TYPES) or (isinstance(each, (RuntimeError, OSError)) and _WORDS.search(str(each)) is not None)
        for each in chain(error)
    )


def attempt(doing: str, action: Callable[[], Any]) -> tuple[Any, CaughtFailure | None]:
    """What the action returns, or the Failure where memory ran out; then nothing it made is kept."""
    try:
        return action(), None
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        failure = CaughtFailure(doing, next(filter(None, (str(each) for each in chain(error))), type(error).__name__))
        for each in chain(error):  # frames hold the activations of the step that failed
            traceback.clear_frames(each.__traceback__)
            each.__traceback__ = None
    return None, failure


def free_memory(device: torch.device) -> None:
    """Gives back what is held for nothing, to the device and to the system."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
    elif device.type in ("mps", "xpu"):
        getattr(torch, device.type).empty_cache()
    elif sys.platform.startswith("linux"):
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc only
        if trim is not None:
            trim(0)


def keep_to_budget(device: torch.device) -> None:
    """``oomproof run --on 8GiB`` leaves the bytes in the environment; PyTorch then refuses what goes beyond them."""
    budget = os.environ.get("OOMPROOF_BUDGET", "")
    if budget.isdecimal() and device.type == "cuda":
        total = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, int(budget) / total), device)


def chain(error: BaseException) -> Iterator[BaseException]:
    """The error and those it was raised from."""
    seen: set[int] = set()
    each: BaseException | None = error
    while each is not None and id(each) not in seen:
        seen.add(id(each))
        yield each
        each = each.__cause__
