"""What Python code hears when it asks where a tensor is.

Fake tensors are CPU tensors, and PyTorch's C++ goes on seeing that: the autograd engine would ask a GPU for its
streams. But libraries have kernels and thresholds of their own for GPUs (``if boxes.is_cuda:``), so Python code is
told what it would be told in the training run: all that is traced is on the GPU, but for what ``.cpu()`` has brought to
the host. While FakeTensorMode works on an operation, its own Python code is told the truth.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import torch

from oomproof.frameworks.torch import FakeTensor
from oomproof.trace.torch.around.typed_tensors import make_on_gpu, typed_tensors_in_place

if TYPE_CHECKING:
    from oomproof.trace.torch.tracer import Tracer

GPU = torch.device("cuda", 0)
_OWN, _TORCH = str(Path(__file__).resolve().parents[3]), str(Path(torch.__file__).parent)
_TRUE_DEVICE = FakeTensor.device.fget


class Asked:
    """The first line of code that asked and heard of a GPU; not counting PyTorch's and oomproof's own."""

    def __init__(self) -> None:
        self.line = ""

    def note(self) -> None:
        if self.line:
            return
        frame = inspect.currentframe()
        for _ in range(2):  # of this method, and of the answer that calls it
            frame = frame and frame.f_back
        if frame is not None and not frame.f_code.co_filename.startswith((_OWN, _TORCH, "<")):
            self.line = f"{frame.f_code.co_filename}:{frame.f_lineno}"


def describe_other_way(line: str, error: Exception) -> str:
    return (
        f"{line} asks whether its tensors are on a GPU; what follows there cannot be traced ({error}), "
        "so the CPU's way is forecast"
    )


@contextmanager
def tensors_said_on_gpu(tracer: Tracer, asked: Asked) -> Iterator[None]:
    with ExitStack() as stack:
        stack.enter_context(typed_tensors_in_place())
        for name, answer in _answers_of_tensors(tracer, asked).items():
            stack.enter_context(patch.object(FakeTensor, name, answer, create=True))
        yield


def _answers_of_tensors(tracer: Tracer, asked: Asked) -> dict[str, Any]:
    def on_gpu(tensor: torch.Tensor) -> bool:
        if tensor.fake_mode is not tracer:  # of another tracer inside this one, as where a narrow network is cut out
            return False
        return not (tracer.inside or tensor.fake_mode.in_kernel_invocation or tracer.ledger.is_on_cpu(tensor))

    def device(self: torch.Tensor) -> torch.device:
        if not on_gpu(self):
            return _TRUE_DEVICE(self)
        asked.note()
        return GPU

    def is_cuda(self: torch.Tensor) -> bool:
        there = on_gpu(self)
        if there:
            asked.note()
        return there

    def is_cpu(self: torch.Tensor) -> bool:
        return _TRUE_DEVICE(self).type == "cpu" and not on_gpu(self)

    def get_device(self: torch.Tensor) -> int:
        there = on_gpu(self)
        if there:
            asked.note()
        return 0 if there else -1

    plain_type = torch.Tensor.type

    def type_(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if args or kwargs:
            return plain_type(self, *args, **kwargs)
        named: str = plain_type(self)
        return named.replace("torch.", "torch.cuda.") if on_gpu(self) else named

    def cpu(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        return tracer.copy_across(self, off_device=True) if on_gpu(self) else self

    plain_new, plain_new_tensor = torch.Tensor.new, torch.Tensor.new_tensor

    # C++ makes these two where it sees this tensor.
    def new(self: torch.Tensor, *given: Any, **named: Any) -> torch.Tensor:
        if on_gpu(self) and not named:
            return make_on_gpu(self.dtype, *given)
        made: torch.Tensor = plain_new(self, *given, **named)
        return made

    def new_tensor(self: torch.Tensor, data: Any, *, dtype: Any = None, device: Any = None, **named: Any) -> Any:
        if not on_gpu(self):
            return plain_new_tensor(self, data, dtype=dtype, device=device, **named)
        return torch.tensor(data, dtype=dtype or self.dtype, device=device or GPU, **named)

    return {
        "device": property(device), "is_cuda": property(is_cuda), "is_cpu": property(is_cpu),
        "get_device": get_device, "type": type_, "cpu": cpu, "record_stream": lambda self, stream: None,
        "new": new, "new_tensor": new_tensor,
    }  # fmt: skip
