"""Failures that really happen here, under a limit on memory, and what is said of the very text they leave."""

from __future__ import annotations

import subprocess
import sys

import pytest

import oomproof

resource = pytest.importorskip(
    "resource", reason="RLIMIT_DATA and /proc, which limit the failing program here, are Linux only"
)

LIMITED = """
import resource, sys
def limit(budget):
    used = next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith("VmData"))
    resource.setrlimit(resource.RLIMIT_DATA, (used + budget, used + budget))
"""


def log_of(code: str) -> str:
    ran = subprocess.run([sys.executable, "-c", LIMITED + code], capture_output=True, text=True, check=False)
    assert ran.returncode != 0
    return ran.stderr


needs_limits = pytest.mark.skipif(
    not sys.platform.startswith("linux"),
    reason="RLIMIT_DATA and /proc, which limit the failing program here, are Linux only",
)


@needs_limits
def test_an_array_of_the_whole_dataset() -> None:
    log = log_of("import numpy as np\nlimit(1 << 28)\nx_train = np.zeros((4000, 512, 512, 3), dtype='float32')\n")
    found = oomproof.explain(log)
    assert found.cause == "host_whole_dataset"
    assert found.facts["shape"] == [4000, 512, 512, 3]
    assert abs(found.facts["requested"] - 4000 * 512 * 512 * 3 * 4) < 1 << 27


@needs_limits
def test_a_bare_memory_error() -> None:
    found = oomproof.explain(log_of("limit(1 << 26)\nx = bytearray(1 << 30)\n"))
    assert (found.cause, found.facts["where"]) == ("host_too_small", "host")


@needs_limits
@pytest.mark.slow
def test_pytorch_on_the_cpu() -> None:
    code = "import torch\ntorch.set_num_threads(1)\nlimit(1 << 28)\nx = torch.empty(3, 1 << 30, dtype=torch.uint8)\n"
    found = oomproof.explain(log_of(code))
    assert (found.cause, found.facts["family"], found.facts["requested"]) == ("host_too_small", "cpu", 3 << 30)


@pytest.mark.thorough
@needs_limits
@pytest.mark.slow
def test_a_request_that_no_machine_has() -> None:
    found = oomproof.explain(log_of("import torch\nx = torch.empty(1 << 60, dtype=torch.uint8)\n"))
    assert found.cause == "outlier_or_bug"


def test_errors_of_other_kinds() -> None:
    for code in ("open('no such file')", "raise KeyboardInterrupt", "{}['memory']", "import no_such_module"):
        found = oomproof.explain(log_of(code))
        assert found.cause == "not_memory", code
