"""Blueprints held against the real Detectron2, where it is installed.

    python bench/detectron2_real.py CONFIG... [--image-size HxW] [--boxes N] [--run] [KEY VALUE ...]

Traces both models on the CPU's rules and prints the peak of each, then every module whose saved activations differ.
``--run`` also trains the real model for two steps and measures PyTorch's CPU allocator during the second: the peak that
the trace must meet. CONFIG is a name of the model zoo or a YAML file; KEY VALUE pairs go over each.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile, record_function

from oomproof.changes.torch.training import Training
from oomproof.memory.cards.devices import find_device
from oomproof.memory.make_forecast import build_forecast
from oomproof.memory.runtime import Runtime
from oomproof.memory.timeline import KINDS, PHASES, Timeline
from oomproof.sources.detectron2.config.config import read
from oomproof.sources.detectron2.pieces import pieces
from oomproof.trace.torch.gpu.samplers import samplers_filled
from oomproof.trace.torch.loop import Loop, Pieces
from oomproof.trace.torch.trace_step import trace_step

MIB = 1 << 20
TRAINING = Training(zero_grad="before_backward")
_CAREFUL = ("SOLVER.BASE_LR", "0.000001")
"""a fresh network on blank images must not diverge in its first step"""
_SECOND = "the second step"


def main() -> int:
    arguments = _arguments()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    height, width = (int(side) for side in arguments.image_size.split("x"))
    for name in arguments.configs:
        config = read(name, (*_CAREFUL, *arguments.overrides))
        settings = {"gpus": 1, "image_size": (height, width), "boxes": arguments.boxes}
        settings |= {"SOLVER.IMS_PER_BATCH": arguments.images, "SOLVER.REFERENCE_WORLD_SIZE": 0}
        jobs = {kind: pieces(config.values, {**settings, "real": kind == "real"}) for kind in ("blueprint", "real")}
        with _storage():
            steps = {
                kind: trace_step(Pieces(job.model, job.batch, job.loss, job.optimizer), TRAINING, dialect="cpu")
                for kind, job in jobs.items()
            }
            peaks = {kind: _peak(step) for kind, step in steps.items()}
            print(f"{name}: " + ", ".join(f"{kind} {peak}" for kind, peak in peaks.items()), flush=True)
            _print_differences(steps["blueprint"], steps["real"])
            if arguments.run:
                job = jobs["real"]
                measured = _measured(Pieces(job.model, job.batch, job.loss, job.optimizer))
                expected = build_forecast(
                    steps["blueprint"], find_device("64GiB"), Runtime(), name, {}
                ).allocated.expected
                print(
                    f"  real CPU allocator {measured / 1e6:.1f} MB, blueprint {expected / 1e6:.1f} MB, "
                    f"error {expected / measured - 1:+.2%}",
                    flush=True,
                )
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("configs", nargs="+", metavar="CONFIG")
    parser.add_argument("--image-size", default="400x667", metavar="HxW")
    parser.add_argument("--images", type=int, default=2)
    parser.add_argument("--boxes", type=int, default=20)
    parser.add_argument("--run", action="store_true", help="train the real model for two steps and measure it")
    arguments = parser.parse_intermixed_args()
    first = next(
        (n for n, text in enumerate(arguments.configs) if text.split(".")[0].isupper()), len(arguments.configs)
    )
    arguments.overrides = arguments.configs[first:]
    arguments.configs = arguments.configs[:first]
    return arguments


@contextmanager
def _storage() -> Iterator[None]:
    """Detectron2's heads report numbers to a storage that its training loop opens."""
    try:
        from detectron2.utils.events import EventStorage
    except ImportError:
        sys.exit("detectron2_real.py: Detectron2 is not installed here, and it is what blueprints are held against")
    with EventStorage(0):
        yield


def _peak(step: Timeline) -> str:
    peak = step.peak()
    return f"{peak.bytes / MIB:.1f} MiB ({peak.phase}, {peak.owner})"


def _print_differences(blueprint: Timeline, real: Timeline) -> None:
    ours, theirs = _saved(blueprint), _saved(real)
    for owner in sorted(ours.keys() | theirs.keys()):
        if abs(ours[owner] - theirs[owner]) > MIB // 4:
            print(f"    {owner or '(model)'}: saved {ours[owner] / MIB:.2f} MiB, real {theirs[owner] / MIB:.2f} MiB")
    print(f"  saved activations {sum(ours.values()) / MIB:.1f} MiB, real {sum(theirs.values()) / MIB:.1f} MiB")


def _saved(step: Timeline) -> Counter[str]:
    """Bytes that live from forward into backward, by the module that made them."""
    last = _last_backward(step)
    forward = (step.phase == PHASES.index("forward")) & (step.kind == KINDS.index("activation"))
    alive = forward & (step.born < last) & (step.died > last)
    found: Counter[str] = Counter()
    for owner, nbytes in zip(step.owner[alive], step.bytes[alive], strict=True):
        found[step.owners[owner]] += int(nbytes)
    return found


def _last_backward(step: Timeline) -> int:
    """The tick at which the last backward pass of the trace begins."""
    order = np.argsort(step.born)
    phases = step.phase[order]
    begins = np.flatnonzero((phases[1:] == PHASES.index("backward")) & (phases[:-1] != PHASES.index("backward"))) + 1
    return int(step.born[order][begins[-1]])


def _calm(model: torch.nn.Module) -> None:
    """Boxes stay where anchors and proposals are: those of a fresh network fly off, and samplers stay half empty."""
    for path, module in model.named_modules():
        if path.endswith(("anchor_deltas", "bbox_pred")):
            torch.nn.init.zeros_(module.weight)
            torch.nn.init.zeros_(module.bias)


def _measured(job: Pieces) -> int:
    """What PyTorch's CPU allocator holds at most during the second real step, weights and batch included."""
    torch.manual_seed(0)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        loop = Loop(job, TRAINING)
        _calm(loop.model)
        loop.load()
        with samplers_filled(loop.model):
            loop.step()
            with record_function(_SECOND):
                loop.step()
    events: Any = profiler.profiler.kineto_results.events()
    start, end = next((e.start_ns(), e.end_ns()) for e in events if e.name() == _SECOND)
    live = most = 0
    for when, nbytes in sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]"):
        live += nbytes
        if start <= when <= end:
            most = max(most, live)
    return most


if __name__ == "__main__":
    sys.exit(main())
