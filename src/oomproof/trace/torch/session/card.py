"""``torch.cuda`` as a script would find it on a machine with one GPU, the one that the forecast is for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch

from oomproof.frameworks.torch import tensors_lifted_on_cpu, without_cuda_start
from oomproof.trace.torch.around.pretended_gpu import answers_of_autocast
from oomproof.trace.torch.around.said_device import GPU

CUDA_VERSION, CUDNN_VERSION = "12.8", 91002
"""what a build of PyTorch for the CPU alone is made to name: a usual pair"""


@dataclass(frozen=True)
class Card:
    """What scripts ask about a GPU."""

    name: str
    total: int
    capability: tuple[int, int]
    gpus: int = 1


@contextmanager
def card_in_place(card: Card, allocated: Callable[[], int]) -> Iterator[None]:
    """``allocated`` says how many bytes the script's tensors hold now."""
    cuda = torch.cuda
    with ExitStack() as stack:
        stack.enter_context(without_cuda_start())
        stack.enter_context(tensors_lifted_on_cpu())
        for name, value in _answers(card, allocated).items():
            stack.enter_context(patch.object(cuda, name, value, create=True))
        for name, value in answers_of_autocast().items():
            stack.enter_context(patch.object(torch, name, value))
        for name in _NOTHING:
            stack.enter_context(patch.object(cuda, name, lambda *_, **__: None, create=True))
        for name, value in _accelerator(card).items():
            if hasattr(torch, "accelerator") and hasattr(torch.accelerator, name):
                stack.enter_context(patch.object(torch.accelerator, name, value))
        for name in ("range_push", "range_pop", "mark", "range"):
            quiet = (lambda *_, **__: nullcontext()) if name == "range" else (lambda *_, **__: 0)
            stack.enter_context(patch.object(cuda.nvtx, name, quiet, create=True))
        stack.enter_context(patch.object(torch.backends.cudnn, "version", lambda: CUDNN_VERSION))
        stack.enter_context(patch.object(torch.backends.cudnn, "is_available", lambda: True))
        stack.enter_context(patch.object(torch.backends.cuda, "is_built", lambda: True))
        if torch.version.cuda is None:
            stack.enter_context(patch.object(torch.version, "cuda", CUDA_VERSION))
        stack.enter_context(patch.object(torch, "Generator", _generator()))
        yield


_NOTHING = (
    "set_device", "synchronize", "empty_cache", "reset_peak_memory_stats", "reset_max_memory_allocated",
    "reset_max_memory_cached", "reset_accumulated_memory_stats", "ipc_collect", "init", "manual_seed",
    "manual_seed_all", "seed", "seed_all", "set_rng_state", "set_rng_state_all", "set_stream",
    "set_per_process_memory_fraction", "set_sync_debug_mode", "check_error",
)  # fmt: skip


def _answers(card: Card, allocated: Callable[[], int]) -> dict[str, Any]:
    def properties(device: Any = None) -> SimpleNamespace:
        major, minor = card.capability
        return SimpleNamespace(
            name=card.name, total_memory=card.total, major=major, minor=minor, multi_processor_count=28,
            is_integrated=False, is_multi_gpu_board=False, warp_size=32, max_threads_per_multi_processor=1536,
            regs_per_multiprocessor=65536, shared_memory_per_block=49152, L2_cache_size=4 << 20, uuid="",
            gcnArchName="",
        )  # fmt: skip

    def random_state(device: Any = None) -> torch.Tensor:
        return torch.get_rng_state()

    def statistics(device: Any = None) -> dict[str, int]:
        usual = ("allocated_bytes.all", "reserved_bytes.all", "active_bytes.all")
        found = {
            f"{name}.{which}": allocated() for name in usual for which in ("current", "peak", "allocated", "freed")
        }
        return {**found, "num_alloc_retries": 0, "num_ooms": 0}

    held = dict.fromkeys(
        ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved", "memory_cached",
         "max_memory_cached"), lambda device=None: allocated(),
    )  # fmt: skip
    return {
        **held,
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "device_count": lambda: card.gpus,
        "current_device": lambda: 0,
        "get_device_name": lambda device=None: card.name,
        "get_device_capability": lambda device=None: card.capability,
        "get_device_properties": properties,
        "mem_get_info": lambda device=None: (max(0, card.total - allocated()), card.total),
        "memory_stats": statistics,
        "memory_summary": lambda *_, **__: "",
        "memory_snapshot": lambda *_, **__: [],
        "is_bf16_supported": lambda including_emulation=True: including_emulation or card.capability >= (8, 0),
        "is_tf32_supported": lambda: card.capability >= (8, 0),
        "get_arch_list": lambda: [f"sm_{card.capability[0]}{card.capability[1]}"],
        "can_device_access_peer": lambda *_: True,
        "get_rng_state": random_state,
        "get_rng_state_all": lambda: [random_state()],
        "initial_seed": torch.initial_seed,
        "utilization": lambda device=None: 0,
        "memory_usage": lambda device=None: 0,
        "temperature": lambda device=None: 40,
        "is_current_stream_capturing": lambda: False,
        "Stream": Stream,
        "Event": Event,
        "ExternalStream": Stream,
        "current_stream": lambda device=None: Stream(),
        "default_stream": lambda device=None: Stream(),
        "stream": lambda stream=None: nullcontext(),
        "device": _Device,
        "device_of": _Device,
    }


def _accelerator(card: Card) -> dict[str, Any]:
    return {
        "is_available": lambda: True,
        "device_count": lambda: card.gpus,
        "current_accelerator": lambda check_available=False: torch.device("cuda"),
        "current_device_index": lambda: 0,
        "current_device_idx": lambda: 0,
        "set_device_index": lambda device: None,
        "set_device_idx": lambda device: None,
        "current_stream": lambda device=None: Stream(),
        "set_stream": lambda stream: None,
        "synchronize": lambda device=None: None,
    }


class Stream:
    """Everything runs in one; what another stream would change of lifetimes is not followed."""

    device, cuda_stream, stream_id, priority = GPU, 0, 0, 0

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def wait_stream(self, stream: Any) -> None:
        pass

    def wait_event(self, event: Any) -> None:
        pass

    def synchronize(self) -> None:
        pass

    def query(self) -> bool:
        return True

    def is_capturing(self) -> bool:
        return False

    def record_event(self, event: Any = None) -> Event:
        return event or Event()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: Any) -> None:
        pass


class Event:
    def __init__(self, *_: Any, **__: Any) -> None:
        self._when = time.perf_counter()

    def record(self, stream: Any = None) -> None:
        self._when = time.perf_counter()

    def wait(self, stream: Any = None) -> None:
        pass

    def synchronize(self) -> None:
        pass

    def query(self) -> bool:
        return True

    def elapsed_time(self, end: Event) -> float:
        return (end._when - self._when) * 1e3


class _Device:
    """``with torch.cuda.device(0):``"""

    def __init__(self, device: Any = None) -> None:
        self.idx, self.prev_idx = 0, 0

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: Any) -> None:
        return None


def _generator() -> Any:
    """Random numbers for the GPU come from a generator of the CPU: only C++ can make the other, from a driver."""
    original = torch.Generator

    class Meta(type(original)):  # type: ignore[misc]
        def __instancecheck__(cls, instance: Any) -> bool:
            return isinstance(instance, original)

        def __call__(cls, device: Any = "cpu") -> Any:
            return original()

    return Meta("Generator", (), {})
