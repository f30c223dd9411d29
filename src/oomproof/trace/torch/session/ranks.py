"""One rank of a training on several GPUs, alone: what it says to the others goes nowhere, and nothing comes back.

Collectives leave tensors as they are. DistributedDataParallel only calls its module: its buckets are priced where the
Timeline is (the setting ``ddp``), with NCCL's buffers outside of the allocator named as not counted.
"""

from __future__ import annotations

import inspect
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch.nn import parallel

from oomproof.trace.torch.session.own_gpu import OwnGpu
from oomproof.trace.torch.session.tensors import call_on_gpu


class OtherRanks:
    """What is known of the others."""

    def __init__(self, count: int, own_gpu: OwnGpu) -> None:
        self.count, self.begun = count, False
        self._own_gpu = own_gpu
        self.settings: dict[str, bool] = {}

    def describe(self) -> dict[str, Any]:
        """Settings of the run that follow from there being others."""
        return {**self.settings, **({"processes": self.count} if self.count > 1 else {})}

    @contextmanager
    def alone(self) -> Iterator[None]:
        with ExitStack() as stack:
            for name, function in self._answers().items():
                for module in (dist, dist.distributed_c10d):
                    if hasattr(module, name):
                        stack.enter_context(patch.object(module, name, function))
            wrapper = self._wrapper()
            for module in (parallel, parallel.distributed):
                stack.enter_context(patch.object(module, "DistributedDataParallel", wrapper))
            stack.enter_context(patch.object(torch.multiprocessing, "spawn", self._spawn))
            stack.enter_context(patch.object(subprocess, "Popen", _without_other_ranks(subprocess.Popen)))
            stack.enter_context(patch.object(torch.nn.SyncBatchNorm, "forward", _plain_batch_norm))
            yield

    def _begin(self, *given: Any, **named: Any) -> None:
        self.begun = True
        self.count = max(self.count, int(named.get("world_size") or -1), int(os.environ.get("WORLD_SIZE", "1")))

    def _end(self, *_: Any) -> None:
        self.begun = False

    def _spawn(self, fn: Callable[..., Any], args: tuple[Any, ...] = (), nprocs: int = 1, *_: Any, **__: Any) -> None:
        self.count = max(self.count, nprocs)
        self._own_gpu.asked = True
        fn(0, *args)

    def _tell_rank(self, group: Any = None) -> int:
        here = inspect.currentframe()
        asking = here.f_back.f_globals.get("__name__", "") if here is not None and here.f_back is not None else ""
        self._own_gpu.asked |= not asking.startswith("torch.")  # a DataLoader asks for its workers' seeds
        return 0

    def _answers(self) -> dict[str, Callable[..., Any]]:
        def gather(outs: Any, tensor: Any, *_: Any, **__: Any) -> Any:
            for out in outs:
                out.copy_(tensor)
            return _Work()

        def gather_into(out: Any, tensor: Any, *_: Any, **__: Any) -> Any:
            out.view(self.count, -1).copy_(tensor.reshape(1, -1).expand(self.count, -1))
            return _Work()

        def gather_objects(outs: list[Any], thing: Any, *_: Any, **__: Any) -> None:
            outs[:] = [thing] * len(outs)

        still = ("all_reduce", "broadcast", "reduce", "barrier", "send", "recv", "isend", "irecv", "monitored_barrier")
        return {
            **dict.fromkeys(still, lambda *_, **__: _Work()),
            "broadcast_object_list": lambda *_, **__: None,
            "all_gather": gather,
            "all_gather_into_tensor": gather_into,
            "all_gather_object": gather_objects,
            "init_process_group": self._begin,
            "destroy_process_group": self._end,
            "is_available": lambda: True,
            "is_initialized": lambda: self.begun,
            "is_nccl_available": lambda: True,
            "is_torchelastic_launched": lambda: self.count > 1,
            "get_rank": self._tell_rank,
            "get_world_size": lambda group=None: self.count if self.begun else 1,
            "get_backend": lambda group=None: "nccl",
            "new_group": lambda *_, **__: None,
        }

    def _wrapper(self) -> type[torch.nn.Module]:
        ranks = self

        class DistributedDataParallel(torch.nn.Module):  # type: ignore[misc]
            def __init__(self, module: torch.nn.Module, *_: Any, **named: Any) -> None:
                super().__init__()
                self.module, self.require_backward_grad_sync = module, True
                ranks.settings["ddp"] = ranks.count > 1
                ranks.settings["gradient_as_bucket_view"] = bool(named.get("gradient_as_bucket_view", False))

            def forward(self, *given: Any, **named: Any) -> Any:
                return call_on_gpu(self, *given, **named)

            def no_sync(self) -> Any:
                return nullcontext()

            def join(self, *_: Any, **__: Any) -> Any:
                return nullcontext()

            def register_comm_hook(self, *_: Any, **__: Any) -> None:
                pass

        return DistributedDataParallel


def _without_other_ranks(popen: type[Any]) -> type[Any]:
    """Lightning starts its script once more for every other GPU, each with its number in the environment."""

    class Popen(popen):  # type: ignore[misc]  # whatever class it is by now
        def __new__(cls, *given: Any, env: Any = None, **named: Any) -> Any:
            if env is not None and env.get("LOCAL_RANK", "0") != "0":
                return _NotStarted()
            return super().__new__(cls)

    return Popen


class _NotStarted:
    """A process of another rank, as far as the one that is followed can see."""

    pid, returncode = 0, None

    def poll(self) -> None:
        return None

    def wait(self, timeout: float | None = None) -> int:
        return 0

    def send_signal(self, number: int) -> None:
        pass

    def terminate(self) -> None:
        pass

    def kill(self) -> None:
        pass


class _Work:
    """A collective that is done."""

    def wait(self, *_: Any) -> bool:
        return True

    def is_completed(self) -> bool:
        return True


def _plain_batch_norm(self: Any, x: torch.Tensor) -> torch.Tensor:
    """Statistics of this rank alone: the others' are a few numbers a channel."""
    training = self.training or (self.running_mean is None and self.running_var is None)
    kept = (self.running_mean, self.running_var) if not self.training or self.track_running_stats else (None, None)
    return torch.nn.functional.batch_norm(
        x, *kept, self.weight, self.bias, training, self.momentum if self.momentum is not None else 0.1, self.eps
    )
