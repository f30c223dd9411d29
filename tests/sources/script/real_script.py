"""Runs a training script for real on the CPU and measures what PyTorch's allocator holds.

    python real_script.py ANSWER.json train.py --batch-size 8

The script's GPU is the CPU: ``.cuda()`` leaves a tensor where it is. It is stopped where the traced one is, which is
found out here by other means: optimizers are counted by their hooks, batches by the loader's iterator.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from collections import Counter
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch.nn.modules import module as modules
from torch.optim import optimizer as optimizers
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

from oomproof.trace.torch.around.stand_ins import _on_cpu
from oomproof.trace.torch.session.card import Card, card_in_place
from oomproof.trace.torch.session.weights import weights_followed

CPU = torch.device("cpu")
FIRST = "oomproof first forward"


class OnCpu(TorchDispatchMode):
    """What is made on a GPU is made here."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        device = kwargs.get("device")
        if device is not None and device.type == "cuda":
            kwargs["device"] = CPU
        return func(*args, **kwargs)


class Enough(BaseException):
    """Two steps of every optimizer."""


class Counting:
    def __init__(self) -> None:
        self.made: list[Any] = []
        self.steps: Counter[int] = Counter()
        self.inside = 0
        self.began = False

    def over(self) -> None:
        stepped = bool(self.made) and all(self.steps[id(each)] >= 1 for each in self.made)
        if stepped and min(self.steps.values()) >= 2:
            raise Enough


def here(argument: Any) -> Any:
    is_gpu = isinstance(argument, torch.device) and argument.type == "cuda"
    return CPU if is_gpu or (isinstance(argument, str) and argument.startswith("cuda")) else argument


def noted(array: Any, make: Any = torch.from_numpy) -> Any:
    tensor = make(array)
    tensor.of_numpy = True
    return tensor


def copied(tensor: Any) -> Any:
    """Memory of NumPy's is not the allocator's; on a GPU the copy of it is."""
    return tensor.clone() if getattr(tensor, "of_numpy", False) else tensor


def put_in_place(counting: Counting) -> None:
    move, init, iterate = torch.Tensor.to, torch.optim.Optimizer.__init__, _BaseDataLoaderIter.__next__
    loader_init = DataLoader.__init__

    def to(self: Any, *args: Any, **kwargs: Any) -> Any:
        return copied(move(self, *map(here, args), **{name: here(value) for name, value in kwargs.items()}))

    def make(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        counting.made.append(self)

    def batch(self: Any) -> Any:
        counting.over()
        return iterate(self)

    def without_workers(self: Any, *args: Any, **kwargs: Any) -> None:
        loader_init(self, *args, **{**kwargs, "num_workers": 0, "pin_memory": False})

    def enter(module: Any, inputs: Any) -> None:
        if not counting.inside and next(module.parameters(), None) is not None:
            counting.over()
            if torch.is_grad_enabled() and not counting.began:
                counting.began = True
                with record_function(FIRST):
                    pass
        counting.inside += 1

    def leave(module: Any, inputs: Any, output: Any) -> None:
        counting.inside -= 1

    def stepped(optimizer: Any, args: Any, kwargs: Any) -> None:
        counting.steps[id(optimizer)] += 1

    patch.object(torch.Tensor, "to", to).start()
    patch.object(torch.Tensor, "cuda", lambda self, *_, **__: copied(self)).start()
    patch.object(torch.Tensor, "record_stream", lambda self, stream: None).start()
    patch.object(torch, "from_numpy", noted).start()
    patch.object(torch.nn.DataParallel, "forward", lambda self, *args, **kwargs: self.module(*args, **kwargs)).start()
    patch.object(torch.nn.Module, "cuda", lambda self, *_, **__: self).start()
    patch.object(torch.optim.Optimizer, "__init__", make).start()
    patch.object(_BaseDataLoaderIter, "__next__", batch).start()
    patch.object(DataLoader, "__init__", without_workers).start()
    patch.object(torch.amp.autocast, "__init__", _on_cpu(torch.amp.autocast.__init__)).start()
    patch.object(torch.amp.GradScaler, "__init__", _on_cpu(torch.amp.GradScaler.__init__)).start()
    modules.register_module_forward_pre_hook(enter)
    modules.register_module_forward_hook(leave, always_call=True)
    optimizers.register_optimizer_step_post_hook(stepped)


def main(answer: Path, words: list[str]) -> None:
    counting = Counting()
    with card_in_place(Card("CPU", 64 << 30, (8, 0)), lambda: 0), weights_followed(lambda text: None), OnCpu():
        torch.Generator().manual_seed(0)
        put_in_place(counting)
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
            try:
                if words[0] == "-m":
                    sys.argv = words[1:]
                    sys.path.insert(0, "")
                    runpy.run_module(words[1], run_name="__main__", alter_sys=True)
                else:
                    sys.argv = words
                    sys.path.insert(0, str(Path(words[0]).resolve().parent))
                    runpy.run_path(words[0], run_name="__main__")
            except Enough:
                pass
    events = profiler.profiler.kineto_results.events()
    start = next(event for event in events if event.name() == FIRST).start_ns()
    live = peak = 0
    for when, nbytes in sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]"):
        live += nbytes
        if when >= start:
            peak = max(peak, live)
    answer.write_text(json.dumps({"peak": peak, "steps": sorted(counting.steps.values())}))
    os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
