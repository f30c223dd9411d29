"""Keras jobs: settings, data, knobs and plans."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tensorflow", reason="Keras jobs need TensorFlow: pip install 'oomproof[tensorflow]'")
import keras
import tensorflow as tf

import oomproof
from oomproof.data.pipeline import Assumed
from oomproof.data.pipeline.buffers import GAPS
from oomproof.errors import InputError, JobError
from oomproof.sources import open_job
from oomproof.sources.keras.batch import batch_of, batch_size, example_of
from oomproof.sources.keras.models import open_application
from oomproof.sources.settings import resolve
from oomproof.trace.request import TraceRequest

layers = keras.layers
SIDE = 24


def net(*more: Any, loss: Any = "sparse_categorical_crossentropy", side: int | None = SIDE) -> Any:
    steps = [keras.Input((side, side, 3)), layers.Conv2D(16, 3), *more, layers.ReLU(), layers.Conv2D(16, 3)]
    model = keras.Sequential([*steps, layers.GlobalAveragePooling2D(), layers.Dense(5, activation="softmax")])
    model.compile("adam", loss)
    return model


def knobs(model: Any) -> dict[str, Any]:
    job = oomproof.KerasJob(model)
    settings = resolve(job, {"batch": 4})
    facts = job.trace(TraceRequest(settings)).about
    return {knob.name: knob for knob in job.knobs(settings, facts)}


@pytest.fixture(scope="module")
def plain() -> Iterator[Any]:
    yield net()


def test_a_compiled_model_is_a_job(plain: Any) -> None:
    few, many = (oomproof.check(plain, on="8GiB", batch_size=size) for size in (4, 64))
    assert few.settings["batch"] == 4
    growth = 60 * (SIDE - 2) ** 2 * 16 * 4  # one activation of the first layer for each further image
    assert many.allocated.expected - few.allocated.expected > growth
    assert any("jit_compile=False" in note for note in many.notes)
    assert many.read_by[0] == "get_memory_info peak"  # and not PyTorch's words


def test_the_model_is_left_as_it_was(plain: Any) -> None:
    before, weights = plain.optimizer, plain.get_weights()
    oomproof.check(plain, on="8GiB", batch=2, accumulate=2, optimizer="sgd")
    assert plain.optimizer is before
    for one, other in zip(weights, plain.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "change", [{"precision": "mixed_bfloat16"}, {"width": 0.5}, {"image_size": (16, 16)}, {"optimizer": "sgd"}]
)
def test_what_saves_memory_saves_it(plain: Any, change: dict[str, Any]) -> None:
    before = oomproof.check(plain, on="8GiB", batch=16)
    after = oomproof.check(plain, on="8GiB", batch=16, **change)
    assert after.allocated.expected < before.allocated.expected


@pytest.mark.slow
def test_micro_batches_promise_what_the_model_allows(plain: Any) -> None:
    assert knobs(plain)["batch"].promise == "identical"
    assert [option.value for option in knobs(plain)["batch"].options] == [4, "2 x 2", "1 x 4"]
    assert "BatchNorm" in knobs(net(layers.BatchNormalization()))["batch"].why
    assert "random" in knobs(net(layers.Dropout(0.5)))["batch"].why
    total = keras.losses.SparseCategoricalCrossentropy(reduction="sum")
    assert "divided" in knobs(net(loss=total))["batch"].why


def test_other_knobs_say_what_they_are(plain: Any) -> None:
    found = {name: knob.promise for name, knob in knobs(plain).items()}
    assert found == {
        "checkpoint": "identical",
        "batch": "identical",
        "precision": "equivalent",
        "optimizer": "different",
        "image_size": "different",
        "width": "different",
    }


@pytest.mark.slow
def test_a_plan_fits_and_is_applied(plain: Any) -> None:
    sizes = [f"{size}MiB" for size in range(1000, 860, -20)]
    tight = next(size for size in sizes if not oomproof.check(plain, on=size, batch=256).fits)
    plan = oomproof.fit(plain, on=tight, batch=256, keep="identical")
    assert plan.fits and plan.promise == "identical"
    micro, parts = plan.settings["batch"], plan.settings["accumulate"]
    assert micro * parts == 256 and parts > 1
    assert "expandable_segments" not in plan.settings
    images = np.zeros((256, SIDE, SIDE, 3), "float32"), np.zeros(256, "int32")
    dataset = plan.batches(tf.data.Dataset.from_tensor_slices(images).batch(256))
    model = plan.apply(net())
    assert model.optimizer.gradient_accumulation_steps == parts
    assert {int(part.shape[0]) for part, _ in dataset} == {micro}


def test_data_say_the_batch_and_the_shapes() -> None:
    arrays = np.zeros((50, SIDE, SIDE, 3), "float32"), np.zeros((50, SIDE, SIDE), "int32")
    dataset = tf.data.Dataset.from_tensor_slices(arrays)
    for batched in (dataset.batch(7), dataset.batch(7, drop_remainder=True).prefetch(2)):
        assert batch_size(batched, example_of(batched)) == 7
    assert batch_size(arrays, example_of(arrays)) == 32
    images, masks = batch_of(None, example_of(dataset.batch(7)), 3, (12, 12))
    assert (images.shape, masks.shape, masks.dtype) == ((3, 12, 12, 3), (3, 12, 12), "int32")


class Photos(keras.utils.PyDataset):
    def __len__(self) -> int:
        return 3

    def __getitem__(self, number: int) -> Any:
        return np.zeros((6, SIDE, SIDE, 3), "float32"), np.zeros((6,), "int64")


def yielded() -> Iterator[Any]:
    yield Photos()[0]


@pytest.mark.parametrize("data", [Photos(), yielded, [Photos()[0], Photos()[1]]], ids=["PyDataset", "function", "list"])
def test_data_that_give_batches_one_by_one(data: Any) -> None:
    example = example_of(data)
    assert batch_size(data, example) == 6
    images, labels = batch_of(None, example, 3, None)
    assert (images.shape, labels.shape, labels.dtype) == ((3, SIDE, SIDE, 3), (3,), "int64")


def test_a_generator_is_not_asked_for_a_batch() -> None:
    data = yielded()
    with pytest.raises(InputError, match="the function that makes it"):
        oomproof.check(oomproof.KerasJob(net(), data=data), on="8GiB")
    assert next(data) is not None


def test_a_pydataset_has_its_queue_in_the_host_figure(plain: Any) -> None:
    data = Photos(workers=2, max_queue_size=50)
    without, with_queue = (oomproof.check(oomproof.KerasJob(plain, data=each), on="8GiB") for each in (None, data))
    image = SIDE * SIDE * 3 * 4
    assert with_queue.settings["batch"] == 6
    assert with_queue.host.expected > without.host.expected + 40 * 6 * image - 2 * 26 * image


def photos(shuffle: int, batch: int) -> Any:
    images = tf.data.Dataset.range(5000).map(lambda number: (tf.zeros((SIDE, SIDE, 3)), 0), num_parallel_calls=2)
    return images.shuffle(shuffle).batch(batch).prefetch(2)


@pytest.mark.thorough
def test_another_batch_and_other_buffers_change_the_host_figure(plain: Any) -> None:
    job = oomproof.KerasJob(plain, data=photos(4000, 100), host=Assumed(cpus=2))
    image = SIDE * SIDE * 3 * 4

    def host(**settings: Any) -> int:
        return oomproof.check(job, on="8GiB", **settings).host.expected

    assert resolve(job, {})["shuffle"] == 4000
    kept = 1 + GAPS["shuffle"]  # malloc's gaps between elements
    assert host() - host(shuffle=1000) == pytest.approx(kept * 3000 * image, rel=0.01)
    assert host(batch=200) > host() + 300 * image  # more batches wait and are made, and they are larger
    # A plan cuts micro-batches from batches that the pipeline makes as before.
    kept = [note for note in oomproof.check(job, on="8GiB").notes if "input pipeline keeps" in note]
    assert kept and kept[0] in oomproof.check(job, on="8GiB", batch=10, accumulate=10).notes


def test_a_large_buffer_is_told_with_the_setting_that_makes_it_smaller(plain: Any) -> None:
    told = oomproof.check(oomproof.KerasJob(plain, data=photos(1_000_000, 8)), on="8GiB").notes
    assert not any("--set shuffle" in note for note in told)  # there are 5000 small images
    large = tf.data.Dataset.range(5000).map(lambda number: (tf.zeros((256, 256, 3)), 0)).shuffle(2000).batch(8)
    told = oomproof.check(oomproof.KerasJob(net(side=None), data=large), on="8GiB").notes
    assert any("--set shuffle=500 would keep 375 MiB of the 1.46 GiB" in note for note in told), told


def test_without_data_targets_follow_the_loss() -> None:
    images, labels = batch_of(net(), None, 3, None)
    assert (images.shape, labels.shape, labels.dtype) == ((3, SIDE, SIDE, 3), (3,), "int32")
    assert batch_of(net(loss="mse"), None, 3, None)[1].shape == (3, 5)
    assert batch_of(net(side=None), None, 3, (40, 48))[0].shape == (3, 40, 48, 3)


def test_a_function_of_the_users_makes_the_job(tmp_path: Path) -> None:
    file = tmp_path / "train_keras_here.py"
    file.write_text(
        "import keras, oomproof\n"
        "def job(batch: int = 4, side: int = 24):\n"
        "    model = keras.Sequential([keras.Input((side, side, 3)), keras.layers.Conv2D(8, 3),\n"
        "                              keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(2)])\n"
        "    model.compile('sgd', 'mse')\n"
        "    return oomproof.KerasJob(model=model, batch=batch)\n"
    )
    few = oomproof.check(f"{file}:job", on="8GiB")
    larger = oomproof.check(f"{file}:job", on="8GiB", side=96)
    assert "image_size" not in few.settings
    assert larger.allocated.expected > 4 * few.allocated.expected


def test_names_that_are_not_known_are_told_with_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean ResNet50"):
        open_application("ResNet5")
    assert resolve(open_application("EfficientNetB3"), {})["image_size"] == (300, 300)


def test_what_is_no_keras_job_is_refused() -> None:
    with pytest.raises(InputError, match="not compiled"):
        oomproof.check(keras.Sequential([keras.Input((4,)), layers.Dense(2)]), on="8GiB")
    with pytest.raises(InputError, match="must be a compiled Keras model or a function"):
        oomproof.KerasJob(model=3)
    with pytest.raises(JobError, match="it gave a int"):
        oomproof.check(oomproof.KerasJob(model=lambda: 3), on="8GiB")
    with pytest.raises(InputError, match="set KERAS_BACKEND=torch in the environment before Keras is imported"):
        oomproof.check(net(), on="8GiB", backend="torch")
    with pytest.raises(InputError, match="is not a job"):
        oomproof.check(3, on="8GiB")


def test_a_function_with_one_number_for_the_size_has_a_batch_rule(tmp_path: Path) -> None:
    """--data asks for it; the parameter is no pair of sides."""
    (tmp_path / "sized.py").write_text(
        "import keras, oomproof, tensorflow as tf\n"
        "def job(batch: int = 4, side: int = 32):\n"
        "    model = keras.Sequential([keras.Input((side, side, 3)), keras.layers.Flatten(), keras.layers.Dense(2)])\n"
        "    model.compile(loss='mse')\n"
        "    images = tf.zeros((8, side, side, 3)), tf.zeros((8, 2))\n"
        "    return oomproof.KerasJob(model=model, data=tf.data.Dataset.from_tensor_slices(images).batch(batch))\n"
    )
    opened = open_job(f"{tmp_path / 'sized.py'}:job")
    rule = opened.batch_rule(resolve(opened, {"side": 48}))
    assert rule.size == (48, 48) and rule.same and "48x48" in rule.words


@pytest.mark.parametrize("gives", ["model", "oomproof.KerasJob(model, (data, data))"])
def test_a_parameter_for_the_batch_is_the_batch(tmp_path: Path, gives: str) -> None:
    """Where the job and its data do not say how many images a step has."""
    file = tmp_path / "text_job.py"
    file.write_text(
        "import keras\nimport numpy as np\nimport oomproof\n\n\ndef job(batch=48):\n"
        "    data = np.zeros((100, 32), 'float32')\n"
        "    model = keras.Sequential([keras.Input((32,)), keras.layers.Dense(32)])\n"
        f"    model.compile('sgd', 'mse', jit_compile=False)\n    return {gives}\n"
    )
    for batch in (48, 16):
        told = oomproof.check(f"{file}:job", on="8GiB", batch=batch)
        assert told.kinds["input"] == batch * (32 + 32) * 4


def test_arrays_do_not_say_the_batch() -> None:
    spec = {each.name: each for each in oomproof.KerasJob(net(), (np.zeros((9, SIDE, SIDE, 3)), np.zeros(9))).settings}
    assert (spec["batch"].default, spec["batch"].basis) == (32, "assumed")
