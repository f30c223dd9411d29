"""A job's second training step, run for real: what the allocator held, to set against the forecast."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from oomproof.changes.torch.micro_batches import move_batch
from oomproof.changes.torch.training import Training
from oomproof.errors import CannotDo, JobError
from oomproof.memory.cards.this_machine import own_device_bytes
from oomproof.trace.torch.gpu.samplers import samplers_filled
from oomproof.trace.torch.loop import Loop, Pieces

_SECOND = "oomproof second step"


@dataclass(frozen=True)
class RealStep:
    """Bytes at the peak of the second step. ``reserved`` and ``on_device`` are a GPU's."""

    allocated: int
    reserved: int | None
    on_device: int | None
    kinds: Mapping[str, int]
    """weights, buffers and optimizer state, which are there all along; ``other`` is what the peak has besides"""
    context: int | None = None
    """what the driver counts for this process, less what PyTorch reserved; None where it does not tell"""
    workspace: int | None = None
    """what libraries still hold in the allocator when every tensor is gone"""


def run_two_steps(pieces: Pieces, training: Training, device: torch.device) -> RealStep:
    """On this machine's ``device``. Samplers are filled as in a trace, so that both mean the same step."""
    torch.manual_seed(0)
    try:
        return _on_gpu(pieces, training, device) if device.type == "cuda" else _on_cpu(pieces, training)
    except (torch.cuda.OutOfMemoryError, MemoryError) as error:
        raise JobError(f"the job does not fit this machine, so it cannot be measured: {error}") from None


def _on_cpu(pieces: Pieces, training: Training) -> RealStep:
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        loop = Loop(pieces, training)
        loop.load()
        with samplers_filled(loop.model):
            loop.step()
            with record_function(_SECOND):
                loop.step()
    events = profiler.profiler.kineto_results.events()
    second = next(event for event in events if event.name() == _SECOND)
    start, end = second.start_ns(), second.start_ns() + second.duration_ns()  # PyTorch 2.4 has no end_ns()
    live = peak = 0
    for when, nbytes in sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]"):
        live += nbytes
        if start <= when <= end:
            peak = max(peak, live)
    return RealStep(peak, None, None, _kinds(loop, peak))


def _on_gpu(pieces: Pieces, training: Training, device: torch.device) -> RealStep:
    """Unproven: there was no GPU to run it on."""
    if pieces.step is not None:
        raise CannotDo("a job with a step of its own is measured on the CPU only: its step decides where tensors go")
    there = replace(pieces, model=lambda: pieces.model().to(device), batch=lambda: move_batch(pieces.batch(), device))
    loop = Loop(there, training)
    loop.load()
    with samplers_filled(loop.model):
        loop.step()
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        loop.step()
    torch.cuda.synchronize(device)
    free, total = torch.cuda.mem_get_info(device)
    peak = torch.cuda.max_memory_allocated(device)
    reserved, kinds = torch.cuda.max_memory_reserved(device), _kinds(loop, peak)
    counted = own_device_bytes() if torch.cuda.device_count() == 1 else 0  # the driver tells of all GPUs together
    context = counted - torch.cuda.memory_reserved(device) if counted else None
    del loop, there
    gc.collect()
    return RealStep(peak, reserved, total - free, kinds, context, torch.cuda.memory_allocated(device))


def _kinds(loop: Loop, peak: int) -> dict[str, int]:
    parameters = list(loop.model.parameters())
    state = [value for each in loop.optimizer.state.values() for value in each.values() if torch.is_tensor(value)]
    found = {
        "parameters": sum(p.nbytes for p in parameters),
        "buffers": sum(b.nbytes for b in loop.model.buffers()),
        "optimizer": sum(value.nbytes for value in state),
    }
    return found | {"other": peak - sum(found.values())}
