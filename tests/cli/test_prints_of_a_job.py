"""What a job prints, in Python or beneath it, is not part of the report."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from oomproof import cli

JOB = """
import os
import torch
from oomproof import TorchJob
print("hello from the file", flush=True)
os.write(1, b"written to the descriptor\\n")

def loss(model, x):
    print("from the loss")
    os.system("echo from a child")
    return model(x).sum()

def job():
    return TorchJob(model=lambda: torch.nn.Linear(4, 4), batch=lambda: torch.rand(2, 4), loss=loss)

def leaves():
    os._exit(0)
"""


def run(path: Path, name: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "oomproof", "check", f"{path}:{name}", "--on", "8GiB", "--json"]
    environment = {**os.environ, "PYTHONPATH": str(Path(cli.__file__).parents[2])}
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environment)


def test_stdout_holds_the_report_alone(tmp_path: Path) -> None:
    path = tmp_path / "noisy.py"
    path.write_text(JOB)
    ran = run(path, "job")
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["fits"] is True
    for text in ("hello from the file", "written to the descriptor", "from the loss", "from a child"):
        assert text in ran.stderr


def test_a_job_that_ends_the_program_fails(tmp_path: Path) -> None:
    path = tmp_path / "leaving.py"
    path.write_text(JOB)
    ran = run(path, "leaves")
    assert ran.returncode == 1
    assert ran.stdout == ""
    assert "os._exit(0)" in ran.stderr
