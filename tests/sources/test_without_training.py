"""A file that trains when it is imported, or a function that does when it is called, is stopped and told so."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from oomproof import check
from oomproof.errors import InputError

KERAS = """
import keras
import numpy as np
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4)])
model.compile("adam", "mse")
{call}
"""
TORCH = """
import torch
from oomproof import TorchJob
net = torch.nn.Linear(8, 4)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
def train():
    while True:
        try:
            net(torch.rand(2, 8)).sum().backward()
            optimizer.step()
        except Exception:
            pass
{call}
def job():
    {inside}
    return TorchJob(model=lambda: torch.nn.Linear(8, 4), batch=lambda: torch.rand(2, 8), loss=lambda m, x: m(x).sum())
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / f"train_{time.monotonic_ns()}.py"
    path.write_text(text)
    return path


def test_gradients_without_backward_are_training_too(tmp_path: Path) -> None:
    text = TORCH.replace(
        "net(torch.rand(2, 8)).sum().backward()", "torch.autograd.grad(net(torch.rand(2, 8)).sum(), net.weight)"
    )
    path = written(tmp_path, text.format(call="train()", inside="pass"))
    with pytest.raises(InputError, match=rf"{path.name}:9 \(autograd.grad\) trains when it is imported.*-- python"):
        check(f"{path}:job", on="8GiB")


@pytest.mark.parametrize(("call", "inside", "line", "when"), [
    ("train()", "pass", 9, "when it is imported"),
    ("", "train()", 9, "when it is called"),
])  # fmt: skip
def test_a_loop_of_pytorch_is_stopped_at_backward(tmp_path: Path, call: str, inside: str, line: int, when: str) -> None:
    path = written(tmp_path, TORCH.format(call=call, inside=inside))
    with pytest.raises(InputError, match=rf"{path.name}:{line} \(Tensor.backward\) trains {when}.*__main__"):
        check(f"{path}:job", on="8GiB")
    import torch

    torch.nn.Linear(2, 2)(torch.rand(1, 2)).sum().backward()  # works again
    assert (f"oomproof_job_{path.stem}" in sys.modules) == (when == "when it is called")


def test_a_file_that_only_builds_is_as_good_as_before(tmp_path: Path) -> None:
    path = written(tmp_path, TORCH.format(call="", inside="pass"))
    assert check(f"{path}:job", on="8GiB").fits


@pytest.mark.slow
@pytest.mark.parametrize("call", [
    "model.fit(np.zeros((64, 8)), np.zeros((64, 4)), epochs=10**9)",
    pytest.param(
        "while True: model.train_on_batch(np.zeros((64, 8)), np.zeros((64, 4)))", marks=pytest.mark.thorough
    ),
])  # fmt: skip
def test_keras_is_stopped_at_fit_though_the_file_imports_it_itself(tmp_path: Path, call: str) -> None:
    path = written(tmp_path, KERAS.format(call=call))
    command = [sys.executable, "-m", "oomproof", "check", f"{path}:model", "--on", "8GiB"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 1
    assert f"{path.name}:6 (Model." in ran.stderr
    assert "trains when it is imported" in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.thorough
@pytest.mark.slow
def test_a_compiled_model_in_a_file_will_do(tmp_path: Path) -> None:
    path = written(tmp_path, KERAS.format(call=""))
    command = [sys.executable, "-m", "oomproof", "check", f"{path}:model", "--on", "8GiB", "--json"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert ran.returncode == 0, ran.stderr
