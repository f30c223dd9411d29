"""Measures what PyTorch's own CPU allocator holds while the very loop that is traced runs for real."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from oomproof.changes.torch.training import Training
from oomproof.memory.validation import Validation
from oomproof.trace.torch.gpu.detections import detections_filled
from oomproof.trace.torch.gpu.samplers import samplers_filled
from oomproof.trace.torch.loop import Loop, Pieces

_SECOND, _VALIDATION = "oomproof second step", "oomproof validation"


@dataclass(frozen=True)
class Measured:
    peak: int
    events: list[tuple[int, int]]
    """(bytes, live after it) of every allocator event of the second step"""


def second_step(pieces: Pieces, training: Training) -> Measured:
    """The peak of everything the allocator holds during the second step, weights and batch included."""
    torch.manual_seed(0)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        loop = Loop(pieces, training)
        loop.load()
        with samplers_filled(loop.model):
            loop.step()
            with record_function(_SECOND):
                loop.step()
    return _within(profiler, _SECOND)


def validation(pieces: Pieces, training: Training, how: Validation) -> Measured:
    """The peak during a validation that comes after a step."""
    torch.manual_seed(0)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        loop = Loop(pieces, training)
        loop.load()
        with samplers_filled(loop.model), detections_filled(loop.model):
            _optimizer_has_state(loop)
            with record_function(_VALIDATION):
                loop.validate(how)
    return _within(profiler, _VALIDATION)


def _optimizer_has_state(loop: Loop) -> None:
    """Gradients and state as a step leaves them, without a step."""
    for group in loop.optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = torch.zeros_like(parameter)
    loop.optimizer.step()


def _within(profiler: profile, name: str) -> Measured:
    events = profiler.profiler.kineto_results.events()
    step = next(event for event in events if event.name() == name)
    start, end = step.start_ns(), step.start_ns() + step.duration_ns()  # PyTorch 2.4 has no end_ns()
    live, seen = 0, []
    for when, nbytes in sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]"):
        live += nbytes
        if start <= when <= end:
            seen.append((nbytes, live))
    return Measured(max(live for _, live in seen), seen)
