"""What a forecast of a Keras job says of its data: host memory, warnings; generators; graphs that are made again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oomproof.api.check import check
from oomproof.data.pipeline.buffers import GAPS
from oomproof.data.pipeline.generators import WORKER, pipeline_of_generator, price_generator, warnings_of_generator
from oomproof.errors import InputError

tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed: there are no data to read")
import keras  # noqa: E402  comes with TensorFlow

from oomproof.data.pipeline.describe import describe_data  # noqa: E402
from oomproof.sources.keras.job import KerasJob  # noqa: E402

MIB = 1 << 20


class Batches(keras.utils.PyDataset):
    def __len__(self) -> int:
        return 50

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return np.zeros((8, 64, 64, 3), np.float32), np.zeros(8, np.int32)


ONE = 8 * 64 * 64 * 3 * 4 + 8 * 4


def model() -> Any:
    made = keras.Sequential([keras.Input((64, 64, 3)), keras.layers.Conv2D(4, 3), keras.layers.GlobalMaxPool2D()])
    made.compile("sgd", "mse")
    return made


def images(index: Any) -> tuple[Any, Any]:
    return tf.fill((64, 64, 3), tf.cast(index, tf.float32)), tf.zeros(4)


def test_a_check_counts_the_pipeline_and_warns() -> None:
    plain = tf.data.Dataset.range(100_000).map(images).batch(16)
    lean = check(KerasJob(model=model, data=plain), on="8GiB")
    large = check(KerasJob(model=model, data=plain.shuffle(1000)), on="8GiB")
    shuffled = 1000 * 16 * (64 * 64 * 3 * 4 + 16)
    assert large.host.expected - lean.host.expected == shuffled + int(GAPS["shuffle"] * shuffled)
    assert large.host.high - lean.host.high >= 1000 * 16 * 64 * 64 * 3 * 4
    assert any("shuffle(1000) comes after batch(16)" in note for note in large.notes)
    assert not any("shuffle" in note for note in lean.notes)
    assert not any("the dataset in host RAM" in each for each in lean.not_counted)  # it was read


def test_a_pydataset_with_workers_keeps_a_queue() -> None:
    queued = pipeline_of_generator(Batches(workers=4, max_queue_size=10))
    assert queued.expected == (11 + 1 + 1) * ONE
    assert pipeline_of_generator(Batches()).expected == (2 + 1 + 1) * ONE  # no queue: tf.data fetches ahead
    apart = pipeline_of_generator(Batches(workers=4, use_multiprocessing=True, max_queue_size=2))
    assert apart.expected == (3 + 4 + 1 + 1) * ONE + 4 * WORKER
    assert describe_data(Batches(workers=4))["pipeline"] == queued.expected
    assert describe_data((1, 2)) == {}


def test_a_plain_generator_is_not_asked_for_a_batch() -> None:
    with pytest.raises(InputError, match=r"expected batch=\(x, y\) as it yields them"):
        pipeline_of_generator(iter([]))
    spec = (tf.TensorSpec((8, 64, 64, 3), tf.float32), tf.TensorSpec((8,), tf.int32))
    assert pipeline_of_generator(iter([]), spec).element.bytes == ONE


def test_generators_are_warned_of_by_what_they_take() -> None:
    assert not warnings_of_generator(price_generator(MIB, workers=4))
    [queue] = warnings_of_generator(price_generator(100 * MIB, workers=4, queue=10))
    assert "11 batches of 100 MiB = 1.07 GiB" in queue and "max_queue_size=2 keeps 300 MiB" in queue
    [apart] = warnings_of_generator(price_generator(MIB, workers=6, processes=True))
    assert "6 worker processes take about 1.47 GiB" in apart
    [many] = warnings_of_generator(price_generator(MIB, workers=16))
    assert "16 worker threads" in many
