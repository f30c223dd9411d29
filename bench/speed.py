"""How quick and how light a trace is, as ratios within one run.

    python bench/speed.py [--quick]

Against a real step of the same Mask R-CNN on this machine's CPU (at least 10 times quicker is the aim), against
PyTorch's own torch.distributed._tools.MemTracker where that runs, and in memory: a job of more than 24 GB must be
traced in less than 2 GiB. ``--quick`` leaves out the real step, which takes minutes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from oomproof.api.check import trace_job
from oomproof.changes.torch.training import training_from
from oomproof.sources import open_job
from oomproof.sources.settings import resolve
from oomproof.trace.torch.gpu.samplers import samplers_filled
from oomproof.trace.torch.loop import Loop, Pieces

MASK = ("torchvision:maskrcnn_resnet50_fpn", {"batch": 2, "image_size": (800, 1333), "weights": "none"})
TRACKED = (
    ("torchvision:resnet50", {"batch": 32}),
    ("torchvision:deeplabv3_resnet50", {"batch": 2, "image_size": (512, 512)}),
    ("torchvision:vit_b_16", {"batch": 32}),
)
LARGE = ("torchvision:maskrcnn_resnet50_fpn", {"batch": 20, "image_size": (800, 1333)})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="without the real CPU step")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    _against_mem_tracker()
    _memory()
    _start_up()
    if not arguments.quick:
        _against_a_real_step()
    return 0


def _timed(work: Callable[[], Any], times: int = 3) -> float:
    """The quickest of some runs, in seconds: what the machine does besides is left out."""
    taken = []
    for _ in range(times):
        started = time.perf_counter()
        work()
        taken.append(time.perf_counter() - started)
    return min(taken)


def _job(name: str, given: dict[str, Any]) -> tuple[Callable[[], Any], Pieces, dict[str, Any]]:
    job = open_job(name)
    settings = resolve(job, given)
    plain = job.with_settings(settings)
    pieces = Pieces(plain.model, plain.batch, plain.loss)
    return (lambda: trace_job(job, settings)), pieces, settings


def _against_mem_tracker() -> None:
    print("model, build and steady step: oomproof (quickest of 3) against MemTracker (quickest of 3)")
    for name, given in TRACKED:
        ours, pieces, settings = _job(name, given)
        mine = _timed(ours)
        try:
            theirs = _timed(lambda pieces=pieces, settings=settings: _mem_tracker(pieces, settings))
        except RuntimeError as error:
            print(f"  {name:34} {mine:5.2f} s; MemTracker does not get through: {error}", flush=True)
            continue
        print(f"  {name:34} {mine:5.2f} s, MemTracker {theirs:5.2f} s: {theirs / mine:.1f} times quicker", flush=True)


def _mem_tracker(pieces: Pieces, settings: dict[str, Any]) -> None:
    """The second step under MemTracker, as its documentation runs it (spared an initialiser that asks for values)."""
    from torch.distributed._tools.mem_tracker import MemTracker

    with FakeTensorMode(), patch.object(torch.nn.init, "trunc_normal_", lambda tensor, *args, **kwargs: tensor):
        loop = Loop(pieces, training_from(settings))
        loop.load()
        tracker = MemTracker()
        tracker.track_external(loop.model, loop.optimizer)
        with tracker:
            loop.step()
            tracker.reset_mod_stats()
            loop.step()


_LIGHT = """
import json, resource, sys
from oomproof.api.check import trace_job
from oomproof.sources.settings import resolve
from oomproof.sources import open_job
name, given = json.loads(sys.argv[1])
job = open_job(name)
given["image_size"] = tuple(given["image_size"])
step = trace_job(job, resolve(job, given))
print(step.peak().bytes, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


def _memory() -> None:
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _LIGHT, json.dumps(LARGE)], capture_output=True, text=True, check=True
    )
    needs, took = (int(part) for part in run.stdout.split())
    print(
        f"a step that needs {needs / 1e9:.1f} GB was traced in {took / 2**30:.2f} GiB of RAM: {needs / took:.0f} to 1"
    )


def _start_up() -> None:
    bare = _timed(lambda: subprocess.run([sys.executable, "-c", ""], check=True), 5)
    ours = _timed(
        lambda: subprocess.run([sys.executable, "-m", "oomproof", "--help"], check=True, stdout=subprocess.DEVNULL), 5
    )
    print(f"oomproof --help: {ours:.2f} s, a bare Python {bare:.2f} s (quickest of 5)")


def _against_a_real_step() -> None:
    ours, pieces, settings = _job(*MASK)
    mine = _timed(ours)
    torch.manual_seed(0)
    loop = Loop(pieces, training_from(settings))
    loop.load()
    with samplers_filled(loop.model):
        real = _timed(loop.step, 1)
    print(
        f"Mask R-CNN 2 x 800x1333: traced in {mine:.1f} s (quickest of 3), one real step on {torch.get_num_threads()} "
        f"CPU cores {real:.1f} s: {real / mine:.0f} times quicker"
    )


if __name__ == "__main__":
    sys.exit(main())
