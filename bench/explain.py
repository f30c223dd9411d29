"""``oomproof explain`` on logs of a gigabyte and on a hundred thousand damaged ones.

    python bench/explain.py [--size 1024] [--fuzz 100000]

Speed is given in MB/s and against a search for one word in the same run; aims are 50 MB/s, less than 200 MiB of
memory, and no exception. ``--size`` is in MiB. Damaged logs are those of tests/diagnosis/fuzz.py.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests" / "diagnosis"))

from fuzz import logs  # noqa: E402

import oomproof  # noqa: E402
from oomproof.diagnosis.diagnosis import CAUSES  # noqa: E402

MIB = 1 << 20
STEP = b"2024-05-01 12:00:00,123 - INFO - Epoch [1][%d/7330] lr: 1.978e-03, time: 0.412, memory: 3770, loss: 2.31\n"
OOM = (
    b"RuntimeError: CUDA out of memory. Tried to allocate 392.00 MiB (GPU 0; 10.76 GiB total capacity; "
    b"4.10 GiB already allocated; 313.00 MiB free; 4.52 GiB reserved in total by PyTorch)\n"
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=1024, help="MiB of each long log; 0 leaves them out")
    parser.add_argument("--fuzz", type=int, default=100_000, help="damaged logs; 0 leaves them out")
    arguments = parser.parse_args()
    kinds = {
        "steps, one failure at the end": steps,
        "a failure on every line": failures,
        "one line without an end": endless,
        "noise": noise,
    }
    for name, pieces in kinds.items() if arguments.size else ():
        _long(name, pieces(arguments.size))
    if arguments.fuzz:
        _damaged(arguments.fuzz)
    return 0


def steps(size: int) -> Iterator[bytes]:
    yield from _times(b"".join(STEP % number for number in range(7330)), size)
    yield OOM


def failures(size: int) -> Iterator[bytes]:
    yield from _times(OOM * 5000, size)


def endless(size: int) -> Iterator[bytes]:
    yield from _times(b"\r  3/100 11.2G 1.100 0.900 640: 43%|####      | 210/488 [00:12<00:16]" * 15_000, size)


def noise(size: int) -> Iterator[bytes]:
    for _ in range(size):
        yield os.urandom(MIB)


def _times(block: bytes, size: int) -> Iterator[bytes]:
    for _ in range(size * MIB // len(block)):
        yield block


def _long(name: str, pieces: Iterator[bytes]) -> None:
    with tempfile.NamedTemporaryFile(suffix=".log") as file:
        for piece in pieces:
            file.write(piece)
        file.flush()
        length = Path(file.name).stat().st_size
        started = time.process_time()
        with Path(file.name).open("rb") as stream:
            while chunk := stream.read(MIB):
                chunk.lower().count(b"out of memory")
        plain = time.process_time() - started
        code = (
            "import json, resource, time, oomproof\nfrom pathlib import Path\n"
            f"found = oomproof.explain(Path({file.name!r}))\n"
            "most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
            "print(json.dumps([found.cause, time.process_time(), most]))"
        )
        ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        cause, seconds, most = json.loads(ran.stdout)
        print(
            f"{name}: {length / 1e6:.0f} MB in {seconds:.1f} s of CPU, {length / 1e6 / seconds:.0f} MB/s "
            f"({seconds / plain:.1f} times a search for one word), {most / 1024:.0f} MiB: {cause}",
            flush=True,
        )


def _damaged(count: int) -> None:
    slowest, found = 0.0, dict.fromkeys(CAUSES, 0)
    began = time.process_time()
    for log in logs(count):
        started = time.process_time()
        found[oomproof.explain(log).cause] += 1
        slowest = max(slowest, time.process_time() - started)
    seconds = time.process_time() - began
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    kinds = sum(1 for number in found.values() if number)
    print(
        f"{count} damaged logs: no exception, {kinds} of {len(CAUSES)} causes, {seconds / count * 1e3:.1f} ms each, "
        f"the slowest {slowest:.2f} s, {most / 1024:.0f} MiB"
    )


if __name__ == "__main__":
    sys.exit(main())
