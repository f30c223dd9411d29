"""Keras on its torch backend against PyTorch's own CPU allocator, and as jobs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("keras")
pytest.importorskip("torch")

HERE = Path(__file__).parent
JOB = """
import numpy as np
import keras, oomproof

class Photos(keras.utils.PyDataset):
    def __len__(self):
        return 3

    def __getitem__(self, number):
        return np.zeros((6, 32, 32, 3), "float32"), np.zeros((6,), "int32")

def job(filters: int = 8):
    model = keras.Sequential([keras.Input((32, 32, 3)), keras.layers.Conv2D(filters, 3),
                              keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(4)])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return oomproof.KerasJob(model=model, data=Photos())

if __name__ == "__main__":
    job().model.save("small.keras")
"""


def ran(*arguments: str, cwd: Path | None = None, backend: str = "") -> subprocess.CompletedProcess[str]:
    unset = {name: value for name, value in os.environ.items() if name != "KERAS_BACKEND"}
    env = {**unset, "OMP_NUM_THREADS": "1", **({"KERAS_BACKEND": backend} if backend else {})}
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=env, cwd=cwd, check=False)


@pytest.fixture(scope="module")
def measured() -> dict[str, Any]:
    out = ran(str(HERE / "keras_on_torch.py"))
    assert out.returncode == 0, out.stderr[-2000:]
    told = [json.loads(line.removeprefix("told ")) for line in out.stdout.splitlines() if line.startswith("told ")]
    return {each["name"]: each for each in told}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["adam", "sgd", "accumulated", "bfloat16", "float16"])
def test_a_step_as_the_real_allocator_has_it(measured: dict[str, Any], name: str) -> None:
    told = measured[name]
    assert told["expected"] == pytest.approx(told["real"], rel=0.01)
    assert told["low"] <= told["real"] <= told["high"]


@pytest.mark.slow
def test_weights_gradients_and_state_are_told_apart(measured: dict[str, Any]) -> None:
    first = 4 * (3 * 9 * 16 + 16)
    trained = first + 4 * (2 * 16 + 16 * 9 * 32 + 32 + 32 * 10 + 10)
    adam, sgd, accumulated = (measured[name]["kinds"] for name in ("adam", "sgd", "accumulated"))
    assert adam["gradient"] == trained - first  # the peak is in BatchNorm's backward, before the first layer's
    assert 2 * trained <= adam["optimizer"] < 2 * trained + 100
    assert sgd["optimizer"] < 100
    assert 3 * trained <= accumulated["optimizer"] < 3 * trained + 100
    assert trained < adam["parameter"] < trained + 200  # statistics of BatchNorm, and seeds
    assert any(owner.startswith("batch_normalization") for owner in measured["adam"]["owners"])


@pytest.mark.thorough
@pytest.mark.slow
def test_jobs_on_torch(tmp_path: Path) -> None:
    (tmp_path / "train_small.py").write_text(JOB)
    assert ran("train_small.py", cwd=tmp_path, backend="torch").returncode == 0
    check = ("-m", "oomproof", "check")
    rest = ("--on", "8GiB", "--backend", "torch", "--json", "-q")
    answers = []
    for job in ("train_small.py:job", "small.keras"):
        out = ran(*check, job, *rest, cwd=tmp_path)
        assert out.returncode == 0, out.stderr
        answers.append(json.loads(out.stdout))
    of_function, of_file = answers
    assert of_function["settings"]["backend"] == "torch"
    assert of_function["settings"]["batch"] == 6  # as the PyDataset has it
    assert of_file["settings"]["batch"] == 32
    more = of_file["allocated"]["expected"] - of_function["allocated"]["expected"]
    assert more > (32 - 6) * 30 * 30 * 8 * 4  # what the convolution gives for the further images
    assert any("PyDataset" in note or "input pipeline" in note for note in of_function["notes"])
