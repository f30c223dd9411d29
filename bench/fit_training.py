"""What a worker of bench/fit.py does: plans a job, trains it under a limit, measures what it takes."""

from __future__ import annotations

import ctypes
import gc
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

import fit_rivals
from fit_jobs import CpuJob, open_bench_job
from fit_worker import data_bytes, limited
from oomproof.api.fit import fit
from oomproof.changes.torch.step import Step
from oomproof.memory.cards.devices import Device
from oomproof.plan.estimates.roofline import REACHED
from oomproof.trace.request import TraceRequest
from oomproof.trace.torch.gpu.samplers import samplers_filled

FINEST = 4 << 20
"""bytes to which the smallest limit is found out"""
FEW = 2
"""images that warm a process up; batch normalisation needs two"""
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX = -1, -2, -4
"""glibc's names for what mallopt() sets"""
SMALL_IMAGES = (160, 224)
"""warm up a process for a full-size job"""


class Training:
    """Model, optimizer and whole batches; the limit holds from before the model is built."""

    def __init__(self, job: CpuJob, settings: dict[str, Any], batch: int) -> None:
        self.filled = ExitStack()
        whole = {**settings, "batch": batch}
        # The loader's batch is in host RAM on a machine with a GPU, so here it is there before the limit counts.
        self.data = job.pieces(whole).batch()
        warm_up(job, settings)
        gc.collect()
        self.start = data_bytes()
        self.images, self.pieces, self.settings = batch, job.pieces(whole), settings
        self.step: Step | None = None

    def build(self) -> None:
        torch.manual_seed(0)
        model = self.pieces.model().train()
        optimizer = self.pieces.optimizer([each for each in model.parameters() if each.requires_grad])
        # Weights stay as they are: a detector that diverges on made-up images soon finds no boxes any more, and gets
        # quicker, the sooner the more updates there are.
        for group in optimizer.param_groups:
            group["lr"] = 0.0
        assert self.pieces.loss is not None
        self.step = Step(model, optimizer, self.pieces.loss, self.settings)
        self.filled.enter_context(samplers_filled(model))

    def run(self, room: int | None) -> float:
        """Seconds of one step, within ``room`` bytes."""
        with limited(room, self.start):
            if self.step is None:
                self.build()
            assert self.step is not None
            return _timed(lambda: self.step(self.data))


def answers(job: CpuJob) -> dict[str, Callable[..., dict[str, Any]]]:
    """The requests that a worker understands."""
    kept: dict[str, Any] = {}

    def plan(budget: int, speed: dict[str, float]) -> dict[str, Any]:
        small = open_bench_job("tiny")  # loads what the tracer loads: rivals are warm too when their time begins
        small.trace(TraceRequest(small.plain))
        began = time.process_time()
        found = fit(job, device(budget, speed), leave=("expandable_segments",), **job.given)
        return {
            "fits": found.fits,
            "settings": {name: value for name, value in found.settings.items() if value != job.plain[name]},
            "promise": found.promise if found.changes else "identical",
            "seconds": time.process_time() - began,
            "traces": found.traces,
            "time": found.time,
            "expected": found.after.allocated.expected,
        }

    def run(settings: dict[str, Any], batch: int, room: int | None) -> dict[str, Any]:
        kept["training"] = training = Training(job, {**job.plain, **settings}, batch)
        kept["room"] = room
        return {"start": training.start}

    def step(times: int = 1) -> dict[str, Any]:
        """Seconds of a step: the mean of ``times`` of them."""
        return {"seconds": sum(kept["training"].run(kept["room"]) for _ in range(times)) / times}

    def unlimited() -> dict[str, Any]:
        """Steps that are timed have shown before that they stay within the limit."""
        keep_freed_memory()
        kept["room"] = None
        kept["training"].run(None)
        return {}

    def compiled(batch: int, room: int, share: float, backend: str) -> dict[str, Any]:
        kept["training"], kept["room"] = fit_rivals.compiled(job, batch, share, backend), room
        return {"start": kept["training"].start}

    return {
        "speed": measured_speed,
        "plan": plan,
        "run": run,
        "step": step,
        "unlimited": unlimited,
        "compiled": compiled,
        "find": lambda how, room: fit_rivals.FINDERS[how](job, room),
        "peak": lambda: peak(job),
        "smallest": lambda near, settings: smallest(job, settings, near),
    }


def device(budget: int, speed: dict[str, float]) -> Device:
    """This CPU with a budget. What was measured is what is reached, so the peaks are put a little above."""
    tflops = speed["tflops"] / REACHED["arithmetic"]
    bandwidth = speed["bandwidth"] / REACHED["bandwidth"]
    return Device("this CPU", budget, tflops=tflops, half_tflops=tflops, bandwidth=bandwidth)


def measured_speed() -> dict[str, float]:
    """10^12 operations a second of a convolution, and 10^9 bytes a second of an operation that reads one tensor and
    writes another."""
    keep_freed_memory()
    layer, images = torch.nn.Conv2d(64, 64, 3, padding=1), torch.rand(8, 64, 56, 56)
    source = torch.rand(8 << 20)
    with torch.no_grad():
        convolution = min(_timed(lambda: layer(images)) for _ in range(8))
    copy = min(_timed(source.clone) for _ in range(8))
    operations = 2 * 8 * 64 * 64 * 9 * 56 * 56
    return {"tflops": operations / convolution / 1e12, "bandwidth": 2 * source.nbytes / copy / 1e9}


def keep_freed_memory() -> None:
    """From now on the process keeps what is freed for the next tensor, as a GPU's allocator does. Giving it back, so
    that a limit holds against what is in use, costs 40 % of the time: the system has to hand out every page again."""
    glibc = ctypes.CDLL(None)
    for option, value in ((M_MMAP_MAX, 0), (M_TRIM_THRESHOLD, 2**31 - 1), (M_TOP_PAD, 64 << 20)):
        glibc.mallopt(option, value)


def _timed(work: Callable[[], Any]) -> float:
    """Seconds as the process was served them: what others take is left out."""
    began = time.process_time()
    work()
    return time.process_time() - began


_warm: set[str] = set()


def warm_up(job: CpuJob, settings: dict[str, Any]) -> None:
    """A step of two images, so that all that is loaded, compiled and started once is there before a limit counts, as
    the CUDA context would be."""
    if str(settings) in _warm:
        return
    _warm.add(str(settings))
    few = {**settings, "batch": FEW, "accumulate": 1}
    if job.full_size:
        few["image_size"] = SMALL_IMAGES
    small = Training(job, few, FEW)
    small.run(None)
    small.run(None)
    small.filled.close()


def peak(job: CpuJob) -> dict[str, Any]:
    """Of the job as it is: what the allocator holds at most in two steps, and of that weights, gradients and state."""
    training = Training(job, job.plain, job.batch)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        training.run(None)
        training.run(None)
    live = highest = 0
    events = profiler.profiler.kineto_results.events()
    for _, nbytes in sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]"):
        live += nbytes
        highest = max(highest, live)
    return {"peak": highest, "floor": _floor(training)}


def smallest(job: CpuJob, settings: dict[str, Any], near: int) -> dict[str, Any]:
    """The smallest limit under which the job runs, by halving the interval around ``near``."""
    training = Training(job, {**job.plain, **settings}, job.batch)
    training.run(None)
    training.run(None)
    low, high = near - (64 << 20), near + (448 << 20)
    while high - low > FINEST:
        middle = (low + high) // 2
        try:
            training.run(middle)
            high = middle
        except (RuntimeError, MemoryError):
            low = middle
        gc.collect()
    return {"room": high}


def _floor(training: Training) -> int:
    assert training.step is not None
    passes = training.step._passes
    weights = [*passes.model.parameters(), *passes.model.buffers()]
    gradients = [each.grad for each in passes.model.parameters() if each.grad is not None]
    state = [t for each in passes.optimizer.state.values() for t in each.values() if isinstance(t, torch.Tensor)]
    return sum(tensor.nbytes for tensor in (*weights, *gradients, *state))
