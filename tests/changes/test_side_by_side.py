"""Both frameworks in one process, each in a process of its own: what goes wrong there is a crash."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("tensorflow")
pytest.importorskip("torch")

KERAS = """
def make():
    import keras
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model
print(oomproof.check(oomproof.KerasJob(make), on="8GiB").on_device.expected > 0)
"""
TORCH = """
import torch
job = oomproof.TorchJob(
    model=lambda: torch.nn.Linear(4, 1), batch=lambda: torch.zeros(2, 4), loss=lambda model, batch: model(batch).mean()
)
print(oomproof.check(job, on="8GiB").on_device.expected > 0)
import torch._dynamo
"""
LOOKS_FOR_TRITON = "from torch.utils._triton import has_triton_package; print(has_triton_package())"


def said(code: str) -> list[str]:
    """What a program prints that does not crash."""
    ran = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert ran.returncode == 0, f"{ran.returncode}: {ran.stderr[-2000:]}"
    return ran.stdout.split()


@pytest.mark.thorough
@pytest.mark.slow
def test_a_keras_job_and_then_one_of_pytorch() -> None:
    pytest.importorskip("triton")
    assert said(f"import oomproof\n{KERAS}{TORCH}{LOOKS_FOR_TRITON}") == ["True", "True", "True"]


@pytest.mark.thorough
@pytest.mark.slow
def test_tensorflow_of_the_users_own_and_then_a_job_of_pytorch() -> None:
    assert said(f"import tensorflow\nimport oomproof\n{TORCH}{LOOKS_FOR_TRITON}") == ["True", "False"]
