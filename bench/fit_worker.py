"""One measurement of bench/fit.py, in a process of its own: a training under a real memory limit.

Reads a request a line from stdin and answers each with a line of JSON on stdout (``start`` runs it). The first request
says which job; the others are plan, run (build a training), step (one timed step of it), find (a rival looks for its
batch), measure (the allocator's peak and what the process takes besides).
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import resource
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ENVIRONMENT = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": "65536",
    "MALLOC_TRIM_THRESHOLD_": "65536",
    "MALLOC_TOP_PAD_": "65536",
}
"""glibc gives freed blocks back to the system at once, so that the limit is held against what is in use"""


PATIENCE = 1800.0
"""seconds that one answer may take"""


class Worker:
    """The other end: starts the process and talks to it."""

    def __init__(self, job: str, threads: int) -> None:
        environment = {**os.environ, **ENVIRONMENT, "OMP_NUM_THREADS": str(threads)}
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", str(Path(__file__)), job, str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def ask(self, what: str, **details: Any) -> dict[str, Any]:
        """The answer; where the process did not survive, what it said last. One that takes too long is ended."""
        assert self.process.stdin is not None and self.process.stdout is not None
        clock = threading.Timer(PATIENCE, self.process.kill)
        clock.start()
        try:
            print(json.dumps({"what": what, **details}), file=self.process.stdin, flush=True)
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            late = not clock.is_alive()
            clock.cancel()
        if late:
            return {"error": f"no answer to «{what}» in {PATIENCE / 60:.0f} minutes"}
        if line:
            answer: dict[str, Any] = json.loads(line)
            return answer
        assert self.process.stderr is not None
        said = self.process.stderr.read().strip().splitlines()
        return {"error": f"died with code {self.process.wait()}: {said[-1] if said else 'no message'}"}

    def end(self) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait()
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


def data_bytes() -> int:
    """What the kernel holds against RLIMIT_DATA: private memory that can be written."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmData"))) * 1024


@contextlib.contextmanager
def limited(room: int | None, start: int) -> Iterator[None]:
    """``room`` bytes on top of ``start``; None: no limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if room is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (start + room, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _serve(name: str, threads: int) -> None:
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not come between the answers
    import torch

    torch.set_num_threads(threads)
    warnings.simplefilter("ignore")
    import fit_training
    from fit_jobs import open_bench_job

    answers: dict[str, Callable[..., dict[str, Any]]] = fit_training.answers(open_bench_job(name))
    for line in sys.stdin:
        request = json.loads(line)
        began = time.perf_counter()
        try:
            answer = answers[request.pop("what")](**request)
        except Exception as error:
            answer = {"error": _words(error)}
        gc.collect()
        print(json.dumps({"took": time.perf_counter() - began, **answer}), file=out, flush=True)


def _words(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0][:200] if text else ''}"


if __name__ == "__main__":
    _serve(sys.argv[1], int(sys.argv[2]))
