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
from oomproof.sources.keras.files import load_model

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
        load_model(file, "json")


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


@pytest.mark.parametrize(
    ("config", "made"),
    [
        ({}, "dict"),
        ({"class_name": None}, "dict"),
        ({"module": "keras.layers", "class_name": "ReLU", "config": {}, "registered_name": None}, "ReLU"),
    ],
)
def test_a_config_that_makes_no_model_is_told(tmp_path: Path, config: Any, made: str) -> None:
    with zipfile.ZipFile(tmp_path / "none.keras", "w") as archive:
        archive.writestr("config.json", json.dumps(config))
    with pytest.raises(DamagedFile, match=f"none.keras should be a saved Keras model; its config makes a {made}"):
        oomproof.check(str(tmp_path / "none.keras"), on="8GiB")


@pytest.mark.parametrize("name", ["bad.keras", "bad.h5"])
def test_a_damaged_file_is_told(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"PK\x03\x04 nothing of use")
    with pytest.raises(DamagedFile, match="should be a"):
        open_job(str(tmp_path / name))
    with pytest.raises(InputError, match="there is no file"):
        open_job(str(tmp_path / f"none_{name}"))


def saved_for_inference(file: Path) -> Path:
    images = keras.Input((16, 16, 3))
    kept = layers.Conv2D(4, 3)(images)
    classes = layers.Dense(5, activation="softmax", name="classes")(layers.Flatten()(kept))
    keras.Model(images, {"classes": classes, "mask": layers.Conv2D(1, 1, name="mask")(kept)}).save(file)
    return file


@pytest.mark.parametrize("suffix", ["keras", "h5"])
def test_a_model_saved_for_inference_is_forecast_with_a_stated_training(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"plain.{suffix}"
    model = keras.Sequential([keras.Input((16, 16, 3)), layers.Conv2D(4, 3), layers.Flatten(), layers.Dense(5)])
    model.save(file)
    expected = {}
    for optimizer, loss in (("adam", "mse"), ("sgd", "sparse_categorical_crossentropy")):
        model.compile(keras.optimizers.get(optimizer) if optimizer == "adam" else keras.optimizers.SGD(0.01, 0.9), loss)
        expected[optimizer] = oomproof.check(model, on="8GiB", batch=8).allocated.expected
    assumed = oomproof.check(str(file), on="8GiB", batch=8)
    assert assumed.allocated.expected == expected["adam"]
    assert any("optimizer=adam and loss=mse; --set" in note for note in assumed.notes)
    given = {"optimizer": "sgd", "loss": "sparse_categorical_crossentropy"}
    told = oomproof.check(str(file), on="8GiB", batch=8, **given)
    assert told.allocated.expected == expected["sgd"] < expected["adam"]
    assert any(note.endswith("optimizer=sgd and loss=sparse_categorical_crossentropy") for note in told.notes)
    half = oomproof.check(str(file), on="8GiB", batch=8, optimizer="sgd")
    assert any(note.endswith("loss=mse; --set loss=... says what yours is") for note in half.notes)


def test_each_output_has_the_loss_of_its_activation(tmp_path: Path) -> None:
    file = saved_for_inference(tmp_path / "two.keras")
    assert load_model(file).loss == {"classes": "sparse_categorical_crossentropy", "mask": "mse"}
    assert load_model(file, loss="mae").loss == {"classes": "mae", "mask": "mae"}
    assert oomproof.check(str(file), on="8GiB", batch=8).fits


def test_only_a_model_without_a_loss_takes_one(tmp_path: Path) -> None:
    net().save(tmp_path / "model.keras")
    with pytest.raises(InputError, match="has no setting 'loss'"):
        oomproof.check(str(tmp_path / "model.keras"), on="8GiB", loss="mae")
    with pytest.raises(InputError, match="loss must be one of own, mse"):
        oomproof.check(str(saved_for_inference(tmp_path / "two.keras")), on="8GiB", loss="focal")


def test_an_attribute_that_is_no_text(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    for name, value in (("number", 5), ("list", [1, 2])):
        file = tmp_path / f"{name}.h5"
        with h5py.File(file, "w") as written:
            written.attrs["model_config"] = value
        with pytest.raises(InputError, match="config is no JSON"):
            open_job(str(file))
