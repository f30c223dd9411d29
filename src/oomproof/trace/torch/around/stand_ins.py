"""What Python code must find in place while it runs on fake tensors.

Some of PyTorch goes around the dispatcher, or refuses fake tensors, or has no GPU to talk to. Each stand-in says
which behaviour of PyTorch it works around (seen in torch 2.14).
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import torch
from torch.nn.modules import module as modules
from torch.optim import optimizer as optimizers

from oomproof.changes.torch import optimizer_state
from oomproof.frameworks.torch import FAKE_TENSOR_LOG, FakeTensor, lists_of_fakes
from oomproof.frameworks.torch_moving import applying_to_fakes
from oomproof.trace.torch.around.pretended_gpu import pretended_gpu, silent_gpu
from oomproof.trace.torch.around.said_device import tensors_said_on_gpu
from oomproof.trace.torch.values import CPU, map_leaves, plain_arithmetic

if TYPE_CHECKING:
    from oomproof.trace.torch.tracer import Tracer


@contextmanager
def stand_ins(tracer: Tracer) -> Iterator[None]:
    with ExitStack() as stack:
        stack.enter_context(applying_to_fakes())
        for name, method in _fake_methods(tracer).items():
            stack.enter_context(patch.object(FakeTensor, name, method, create=True))
        for name, function in inspect.getmembers(torch.nn.init, inspect.isfunction):
            if name.endswith("_") and not name.startswith("_"):
                stack.enter_context(patch.object(torch.nn.init, name, _without_values(function)))
        # A shape error in the user's model is told as theirs; FakeTensorMode would print its own traceback before.
        stack.enter_context(patch.object(logging.getLogger(FAKE_TENSOR_LOG), "disabled", True))
        stack.enter_context(silent_gpu())
        stack.enter_context(patch.object(torch.amp.autocast, "__init__", _on_cpu(torch.amp.autocast.__init__)))
        stack.enter_context(patch.object(torch.amp.GradScaler, "__init__", _on_cpu(torch.amp.GradScaler.__init__)))
        for owner in (torch, FakeTensor):
            stack.enter_context(patch.object(owner, "allclose", _agreeing(tracer, torch.allclose), create=True))
        stack.enter_context(lists_of_fakes())
        for name, move in _to_and_from_host(tracer).items():
            stack.enter_context(patch.object(optimizer_state, name, move))
        if tracer.told is not None:
            stack.enter_context(tensors_said_on_gpu(tracer, tracer.told))
            stack.enter_context(pretended_gpu(tracer.told))
        _follow_modules(stack, tracer)
        _follow_optimizers(stack, tracer)
        yield


def _fake_methods(tracer: Tracer) -> dict[str, Callable[..., Any]]:
    """``numpy``, ``tolist`` and ``__array__`` read memory without an operation; ``cuda``, ``pin_memory`` and ``to``
    want a GPU; ``__deepcopy__`` sets a CPU storage on what is a meta tensor inside; ``__format__`` knows the numbers of
    plain tensors alone (`f"{loss:.4f}"`)."""

    def numpy(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        real = tracer.compute(self)
        with plain_arithmetic():
            return real.clone().numpy(*args, **kwargs)

    def tolist(self: torch.Tensor) -> Any:
        real = tracer.compute(self)
        with plain_arithmetic():
            return real.tolist()

    def array(self: torch.Tensor, dtype: Any = None, copy: bool | None = None) -> Any:
        content = numpy(self)
        return content if dtype is None else content.astype(dtype)

    def format_number(self: torch.Tensor, form: str) -> str:
        if self.dim() or _is_parameter(self):
            return object.__format__(self, form)
        return format(self.item(), form)

    def stay(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        return self

    def cuda(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        if tracer.ledger.is_off_device(self):
            return tracer.copy_across(self, off_device=False)
        tracer.ledger.put_on_gpu(self)
        return self

    to_anywhere = torch.Tensor.to

    def to(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        if tracer.ledger.is_on_cpu(self) and any(map(_is_gpu, (*args, *kwargs.values()))):
            self = cuda(self)
        here = map_leaves(_here, args)
        return to_anywhere(self, *here, **{key: _here(value) for key, value in kwargs.items()})

    def deepcopy(self: torch.Tensor, memo: dict[int, Any]) -> torch.Tensor:
        if id(self) not in memo:
            with torch.no_grad():
                copy: torch.Tensor = self.detach().clone().requires_grad_(self.requires_grad)
            memo[id(self)] = torch.nn.Parameter(copy, self.requires_grad) if _is_parameter(self) else copy
        return memo[id(self)]

    return {
        "numpy": numpy, "tolist": tolist, "__array__": array, "__deepcopy__": deepcopy,
        "__format__": format_number,
        "cuda": cuda, "pin_memory": stay, "to": to,
    }  # fmt: skip


def _agreeing(tracer: Tracer, compare: Callable[..., bool]) -> Callable[..., bool]:
    """What a network puts out is made up here, and agrees with nothing. Scripts compare it to see that all is well
    (YOLOv5: mixed precision against fp32), and in a real run it is."""

    def allclose(first: torch.Tensor, second: torch.Tensor, *args: Any, **kwargs: Any) -> bool:
        made_up = any(
            isinstance(each, FakeTensor) and tracer.contents.value_of(each).from_network for each in (first, second)
        )
        return first.shape == second.shape if made_up else compare(first, second, *args, **kwargs)

    return allclose


def _to_and_from_host(tracer: Tracer) -> dict[str, Callable[..., torch.Tensor]]:
    """All fake tensors are on one device; which of them a real run has in host RAM must be said."""

    def to_host(tensor: torch.Tensor, place: torch.Tensor | None = None) -> torch.Tensor:
        place = torch.empty_like(tensor) if place is None else place
        tracer.ledger.on_host(place)
        return place

    def to_device(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
        return torch.empty_like(tensor)

    return {"to_host": to_host, "to_device": to_device}


def _is_parameter(tensor: torch.Tensor) -> bool:
    return isinstance(tensor, torch.nn.Parameter)


def _here(argument: Any) -> Any:
    """A device named in user code becomes the one that is traced on."""
    if isinstance(argument, torch.device) or type(argument) is int:  # a GPU's number
        return CPU
    if isinstance(argument, str) and argument.split(":")[0] in ("cuda", "mps", "xpu", "cpu"):
        return CPU
    return argument


def _is_gpu(argument: Any) -> bool:
    """Whether ``to(argument)`` asks for a GPU: a device, its name or number, or a tensor that is there."""
    if isinstance(argument, torch.Tensor):
        return bool(argument.is_cuda)
    if isinstance(argument, str):
        return argument.startswith("cuda")
    return argument.type == "cuda" if isinstance(argument, torch.device) else type(argument) is int


def _on_cpu(init: Callable[..., None]) -> Callable[..., None]:
    """torch.autocast("cuda") and GradScaler("cuda") switch themselves off where there is no GPU."""
    accepted = inspect.signature(init).parameters
    name = next(name for name in ("device_type", "device") if name in accepted)

    @wraps(init)  # whose signature is asked for again where one trace runs inside another
    def on_cpu(self: Any, *args: Any, **kwargs: Any) -> None:
        device = kwargs.pop(name, args[0] if args else "cuda")
        if "dtype" in accepted and len(args) < 2 and kwargs.get("dtype") is None:
            kwargs["dtype"] = torch.get_autocast_dtype(torch.device(device).type)  # fp16 on a GPU, bf16 on the CPU
        init(self, "cpu", *args[1:], **kwargs)

    return on_cpu


def _without_values(initialise: Callable[..., Any]) -> Callable[..., Any]:
    """Initialisers look at values (trunc_normal_ checks its own result), which would compute every weight."""

    def leave_fakes(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        return tensor if isinstance(tensor, FakeTensor) else initialise(tensor, *args, **kwargs)

    return leave_fakes


def _follow_modules(stack: ExitStack, tracer: Tracer) -> None:
    ledger = tracer.ledger

    def enter(module: torch.nn.Module, inputs: Any) -> None:
        ledger.enter_module(module, inputs)

    def leave(module: torch.nn.Module, inputs: Any, output: Any) -> None:
        ledger.leave_module(inputs, output)

    stack.callback(modules.register_module_forward_pre_hook(enter).remove)
    stack.callback(modules.register_module_forward_hook(leave, always_call=True).remove)


def _follow_optimizers(stack: ExitStack, tracer: Tracer) -> None:
    def before(optimizer: Any, args: Any, kwargs: Any) -> None:
        tracer.ledger.optimizer_runs(True)

    def after(optimizer: Any, args: Any, kwargs: Any) -> None:
        tracer.ledger.optimizer_runs(False)

    stack.callback(optimizers.register_optimizer_step_pre_hook(before).remove)
    stack.callback(optimizers.register_optimizer_step_post_hook(after).remove)
