"""The GPU that there may not be: what a step asks of ``torch.cuda``, of autocast and of generators.

Code that is told that its tensors are on a GPU (said_device.py) goes on to ask about that GPU. How much memory it has
is not answered, and the job is told so: the same trace is held against every card.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any, NoReturn
from unittest.mock import patch

import torch

from oomproof.errors import JobError
from oomproof.frameworks.torch import default_device, learn_factories
from oomproof.trace.torch.around.said_device import GPU, Asked
from oomproof.trace.user_code import user_line_now

_TALKS_TO_THE_GPU = (
    "empty_cache", "max_memory_allocated", "max_memory_reserved", "memory_allocated", "memory_reserved",
    "memory_usage", "reset_accumulated_memory_stats", "reset_max_memory_allocated", "reset_max_memory_cached",
    "reset_peak_memory_stats", "set_device", "synchronize", "temperature", "utilization",
)  # fmt: skip
"""training loops call these around a step; without a GPU they fail"""


@contextmanager
def silent_gpu() -> Iterator[None]:
    """What training loops tell a GPU around a step goes nowhere."""
    with ExitStack() as stack:
        for name in _TALKS_TO_THE_GPU:
            stack.enter_context(patch.object(torch.cuda, name, lambda *args, **kwargs: 0))
        yield


@contextmanager
def pretended_gpu(asked: Asked) -> Iterator[None]:
    learn_factories()  # as they are without the stand-ins below
    with ExitStack() as stack:
        for name, answer in _answers_of_cuda(asked).items():
            stack.enter_context(patch.object(torch.cuda, name, answer))
        accelerator = getattr(torch, "accelerator", None)  # from 2.6 on; optimizers ask it for streams
        for name, answer in _answers_of_accelerator().items() if accelerator else ():
            stack.enter_context(patch.object(accelerator, name, answer))
        stack.enter_context(patch.object(torch.Tensor, "pin_memory", lambda self, *_: self))  # data loaders ask for it
        for name, function in answers_of_autocast().items():
            stack.enter_context(patch.object(torch, name, function))
        for name in ("tensor", "as_tensor", "asarray"):
            stack.enter_context(patch.object(torch, name, _without_device(getattr(torch, name))))
        stack.enter_context(patch.object(torch, "Generator", _OnCpu))
        # It looks for weights that lie apart, and lays them out anew for cuDNN: as much memory as before.
        stack.enter_context(patch.object(torch.nn.RNNBase, "flatten_parameters", lambda self: None))
        yield


def _without_device(make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """These move what they make to a GPU beneath the dispatcher, if they are told to or the GPU is the default."""

    @wraps(make)
    def make_tensor(*args: Any, **kwargs: Any) -> torch.Tensor:
        device, default = kwargs.pop("device", None), default_device()
        here = {} if default is None else {"device": "cpu"}
        tensor = make(*args, **kwargs, **here)
        device = default if device is None else device
        return tensor if device is None or str(device) == "cpu" else tensor.cuda()

    return make_tensor


class _Idle:
    """A stream, an event, a chosen device: nothing waits for it, and code may run inside it."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.device, self.device_index, self.cuda_stream, self.idx = GPU, 0, 0, 0

    def __enter__(self) -> _Idle:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def query(self) -> bool:
        return True

    def is_capturing(self) -> bool:
        return False

    def elapsed_time(self, _: Any) -> float:
        return 0.0

    def _nothing(self, *_: Any, **__: Any) -> None:
        pass

    record = wait = synchronize = wait_event = wait_stream = _nothing

    def record_event(self, event: Any = None) -> Any:
        return event or _Idle()


def _answers_of_cuda(asked: Asked) -> dict[str, Any]:
    """One GPU of the kind whose kernels are traced (gpu/dialect.py): compute capability 8.0."""

    def is_available() -> bool:
        asked.note()
        return True

    return {
        "is_available": is_available, "device_count": lambda: 1, "current_device": lambda: 0,
        "get_device_name": lambda device=None: _NAME, "get_device_properties": lambda device=None: _Properties(),
        "mem_get_info": _refuse_memory, "memory_stats": lambda device=None: defaultdict(int),
        "memory_summary": lambda *_, **__: "", "memory_snapshot": lambda *_, **__: [],
        "set_per_process_memory_fraction": _refuse_limit,
        "get_device_capability": lambda device=None: (8, 0), "is_bf16_supported": lambda *_, **__: True,
        "is_current_stream_capturing": lambda: False, "ipc_collect": lambda: None, "init": lambda: None,
        "get_rng_state": lambda device=None: torch.get_rng_state(), "set_rng_state": lambda *_, **__: None,
        **dict.fromkeys(("Stream", "Event", "stream", "device", "device_of"), _Idle),
        **dict.fromkeys(("current_stream", "default_stream"), lambda device=None: _Idle()),
    }  # fmt: skip


_NAME = "NVIDIA GPU"


class _Properties:
    """What is asked of ``torch.cuda.get_device_properties``."""

    name, major, minor, multi_processor_count, warp_size = _NAME, 8, 0, 108, 32
    total_memory = property(lambda self: _refuse_memory())


def _refuse_memory(device: Any = None) -> NoReturn:
    raise JobError(
        f"the job asks how much memory the GPU has (at {user_line_now()}), and its forecast is held against any GPU; "
        "make what depends on it a parameter of the job, which --set changes"
    )


def _refuse_limit(fraction: float, device: Any = None) -> None:
    if fraction < 1:
        raise JobError(
            f"the job lets itself have {fraction:.0%} of the GPU's memory (at {user_line_now()}): take that line out, "
            "and give --on the memory that it leaves"
        )


def _answers_of_accelerator() -> dict[str, Any]:
    return {
        "is_available": lambda: True, "device_count": lambda: 1, "current_device_index": lambda: 0,
        "current_accelerator": lambda check_available=False: torch.device("cuda"),
        "current_stream": lambda device=None: _Idle(),
        **dict.fromkeys(("set_device_index", "set_stream", "synchronize"), lambda *_, **__: None),
    }  # fmt: skip


def answers_of_autocast() -> dict[str, Callable[..., Any]]:
    """Autocast for CUDA acts on the CPU's switches while a trace runs."""
    enabled, dtype, gpu_dtype = torch.is_autocast_enabled, torch.get_autocast_dtype, torch.get_autocast_gpu_dtype

    def is_autocast_enabled(device_type: str = "cuda") -> bool:
        return bool(enabled("cpu" if device_type == "cuda" else device_type))

    def get_autocast_dtype(device_type: str) -> torch.dtype:
        return dtype("cpu" if device_type == "cuda" and enabled("cpu") else device_type)

    def get_autocast_gpu_dtype() -> torch.dtype:
        return dtype("cpu") if enabled("cpu") else gpu_dtype()

    return {
        "is_autocast_enabled": is_autocast_enabled, "get_autocast_dtype": get_autocast_dtype,
        "get_autocast_gpu_dtype": get_autocast_gpu_dtype,
    }  # fmt: skip


_Generator = torch.Generator


class _OnCpuMeta(type):
    def __instancecheck__(cls, each: Any) -> bool:
        return isinstance(each, _Generator)

    def __call__(cls, device: Any = None) -> torch.Generator:
        return _Generator()


class _OnCpu(metaclass=_OnCpuMeta):
    """torch.Generator for a GPU, without one."""
