"""The code that ``fit --write`` prints for Keras jobs runs, and trains as the plan says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tensorflow", reason="Keras jobs need TensorFlow: pip install 'oomproof[tensorflow]'")
import keras
import tensorflow as tf

from oomproof.memory.settings import Settings
from oomproof.sources import open_job
from oomproof.sources.keras.training_code import DATASET, write_training_code
from oomproof.sources.settings import resolve

pytestmark = [
    # Keras 3.15 on NumPy 2: said while weights are saved.
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Skipping variable loading:UserWarning"),  # of an optimizer before its first step
    # Keras 3.15: said of every dataset that fit() gets.
    pytest.mark.filterwarnings("ignore:`shuffle=True` was passed:UserWarning"),
]

PLAN = {"batch": 2, "accumulate": 4}
JOB = """
import keras
import oomproof
import tensorflow as tf


def job(batch: int = 8):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    data = tf.data.Dataset.from_tensor_slices((tf.zeros((16, 4)), tf.zeros((16, 1)))).shuffle(16).batch(batch)
    return oomproof.KerasJob(model=%s, data=data)
"""


def trained(job: str, settings: dict[str, Any], **space: Any) -> Any:
    """The model after the printed code has run; ``space`` has what the user fills in."""
    opened = open_job(job)
    text = opened.write(resolve(opened, settings), Path("plan.json"))
    code = text.split("In your training:")[1]
    if "dataset" in space:
        assert DATASET in code
        code = code.replace(DATASET, "")
    exec(code.replace("model.compile(...)", "model.compile('adam', 'mse')"), space)
    return space["model"]


def saved(name: str, *more: Any) -> Any:
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), *more, keras.layers.Dense(1)])
    model.compile("adam", "mse")
    model.save(name)
    return tf.data.Dataset.from_tensor_slices((np.zeros((16, 4), "float32"), np.zeros((16, 1), "float32"))).batch(8)


def checked(model: Any) -> None:
    inner = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    assert inner.gradient_accumulation_steps == 4
    assert int(inner.iterations) == 2  # 16 images in micro-batches of 2: 8 of them make two updates


@pytest.mark.parametrize("name", ["model.keras", "model.h5"])
@pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5 file")
def test_of_a_saved_model(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    dataset = saved(name)
    model = trained(name, {**PLAN, "precision": "mixed_bfloat16"}, dataset=dataset)
    checked(model)
    assert model.layers[0].dtype_policy.name == "mixed_bfloat16"


def test_of_a_saved_model_with_a_layer_of_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    text = "import keras\nclass Doubled(keras.layers.Layer):\n    def call(self, given):\n        return given * 2\n"
    Path("layers_to_write.py").write_text(text)
    space: dict[str, Any] = {"__name__": "layers_to_write"}
    exec(text, space)
    dataset = saved("own.keras", space["Doubled"]())
    checked(trained("own.keras", {**PLAN, "custom": "layers_to_write.py"}, dataset=dataset))


@pytest.mark.parametrize("model", ["model", "lambda: model"], ids=["model", "function"])
def test_of_a_function(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    file = Path(f"written_{len(model)}.py")
    file.write_text(JOB % model)
    checked(trained(f"{file}:job", PLAN))


def around(path: Path, *changes: str, **settings: Any) -> list[str]:
    """What is printed before the model is made."""
    usual = {"backend": "tensorflow", "memory_growth": False, "memory_limit_mb": 0}
    lines = write_training_code(Settings({**usual, **settings}), path, ["model = ..."], changes)
    return lines[: lines.index("from oomproof.run.keras import apply, batches")]


def test_of_a_function_that_gives_the_model_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    given = JOB.partition("    data =")[0].replace("def job", "def bare")
    Path("bare_keras_job.py").write_text(f"{given}    return model\n")
    dataset = tf.data.Dataset.from_tensor_slices((np.zeros((16, 4), "float32"), np.zeros((16, 1), "float32"))).batch(8)
    model = trained("bare_keras_job.py:bare", PLAN, dataset=dataset)
    assert model.optimizer.gradient_accumulation_steps == 4


def test_what_concerns_the_device_comes_before_any_model(tmp_path: Path) -> None:
    file, gpu = tmp_path / "plan.json", "tf.config.list_physical_devices('GPU')[0]"
    assert around(file) == []
    growth = around(file, memory_growth=True)
    assert growth == ["import tensorflow as tf", f"tf.config.experimental.set_memory_growth({gpu}, True)", ""]
    assert around(file, "memory_growth: true -> false")[1] == growth[1].replace("True", "False")
    limited = around(file, memory_limit_mb=7117)
    assert limited[1].startswith(
        f"tf.config.set_logical_device_configuration({gpu}, [tf.config.LogicalDeviceConfiguration(memory_limit=7117)])"
    )
    both = around(file, memory_limit_mb=7117, memory_growth=True)
    assert both[1].startswith("os.environ['TF_FORCE_GPU_ALLOW_GROWTH'] = 'true'") and both[2:] == limited
    told = around(file, memory_growth=True, memory_limit_mb=9000, backend="jax")
    assert told[1] == "os.environ['XLA_PYTHON_CLIENT_PREALLOCATE'] = 'false'"
    assert "XLA_PYTHON_CLIENT_MEM_FRACTION" in told[2]


def test_lines_for_the_device_are_taken_by_tensorflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no GPU to set; what is handed to TensorFlow's functions is looked at."""
    seen: list[Any] = []
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [f"the {kind}"])
    monkeypatch.setattr(tf.config, "set_logical_device_configuration", lambda *given: seen.append(given))
    monkeypatch.setattr(tf.config.experimental, "set_memory_growth", lambda *given: seen.append(given))
    exec("\n".join(around(tmp_path / "plan.json", memory_limit_mb=7117)), {})
    exec("\n".join(around(tmp_path / "plan.json", memory_growth=True)), {})
    assert seen == [("the GPU", [tf.config.LogicalDeviceConfiguration(memory_limit=7117)]), ("the GPU", True)]
