"""Saved Keras models: read as data, never run."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tensorflow", reason="saved Keras models need TensorFlow: pip install 'oomproof[tensorflow]'")
import keras

import oomproof
from oomproof.errors import DamagedFile, InputError
from oomproof.sources import open_job
from oomproof.sources.keras.files import load

# Keras 3.15 on NumPy 2: said while weights are saved.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

layers = keras.layers


def net(*more: Any, loss: Any = "mse") -> Any:
    model = keras.Sequential([keras.Input((16, 16, 3)), layers.Conv2D(4, 3), *more, layers.Flatten(), layers.Dense(2)])
    model.compile("adam", loss, metrics=["mae"])
    return model


@pytest.mark.parametrize("suffix", ["keras", "h5"])
def test_a_saved_model_is_forecast_as_the_model_is(tmp_path: Path, suffix: str, caplog: Any) -> None:
    model, file = net(), tmp_path / f"model.{suffix}"
    expected = oomproof.check(model, on="8GiB", batch=8).allocated.expected
    model.save(file)
    saved = oomproof.check(str(file), on="8GiB", batch=8).allocated.expected
    assert abs(saved - expected) <= 1024  # a metric is two numbers, in blocks of 256 bytes


def with_marker(folder: Path) -> tuple[Path, Path]:
    """A saved model with a layer and a loss of the user's, and the module that holds them, which leaves a mark."""
    module, marker = folder / "own_layers_of_a_test.py", folder / "was_run"
    module.write_text(
        f"from pathlib import Path\nimport keras\nPath({str(marker)!r}).touch()\n"
        "class Twice(keras.layers.Layer):\n    def call(self, given):\n        return given * 2\n"
        "def far(target, given):\n    return keras.ops.mean(keras.ops.abs(target - given), axis=-1)\n"
    )
    space: dict[str, Any] = {"__name__": "own_layers_of_a_test"}
    exec(module.read_text(), space)
    net(space["Twice"](), loss=space["far"]).save(folder / "own.keras")
    marker.unlink()
    return folder / "own.keras", marker


def test_layers_of_the_users_are_refused_until_their_module_is_named(tmp_path: Path) -> None:
    file, marker = with_marker(tmp_path)
    with pytest.raises(InputError, match=r"not Keras's own: far, Twice.*--set custom=layers\.py"):
        oomproof.check(str(file), on="8GiB")
    assert not marker.exists()
    module = str(tmp_path / "own_layers_of_a_test.py")
    assert oomproof.check(str(file), on="8GiB", batch=4, custom=module).fits
    assert marker.exists()
    with pytest.raises(InputError, match="json has no far, Twice"):
        load(file, "json")


@pytest.mark.parametrize("suffix", ["keras", "h5"])
def test_code_in_a_file_is_never_run(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"model.{suffix}"
    net(layers.Lambda(lambda given: given * 2)).save(file)
    with pytest.raises(InputError, match="holds code"):
        oomproof.check(str(file), on="8GiB", custom="json")


def test_a_config_that_names_another_module_is_refused(tmp_path: Path) -> None:
    file, hostile = tmp_path / "model.keras", tmp_path / "hostile.keras"
    net().save(file)
    with zipfile.ZipFile(file) as source, zipfile.ZipFile(hostile, "w") as target:
        config = json.loads(source.read("config.json"))
        config["config"]["layers"][1] |= {"module": "os", "class_name": "system", "registered_name": None}
        target.writestr("config.json", json.dumps(config))
    with pytest.raises(InputError, match=r"not Keras's own: system"):
        oomproof.check(str(hostile), on="8GiB")


@pytest.mark.parametrize("name", ["bad.keras", "bad.h5"])
def test_a_damaged_file_is_told(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"PK\x03\x04 nothing of use")
    with pytest.raises(DamagedFile, match="should be a"):
        open_job(str(tmp_path / name))
    with pytest.raises(InputError, match="there is no file"):
        open_job(str(tmp_path / f"none_{name}"))


def test_a_model_that_was_not_compiled_is_told(tmp_path: Path) -> None:
    images = keras.Input((4,))
    keras.Model(images, layers.Dense(2)(images)).save(tmp_path / "plain.keras")
    with pytest.raises(InputError, match="saved without its training"):
        oomproof.check(str(tmp_path / "plain.keras"), on="8GiB")
