"""A pipeline with other numbers than it was written with is priced as if it had been written with them."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("tensorflow")
import tensorflow as tf

from oomproof.changes.keras.pipeline import sizes
from oomproof.data.pipeline import Assumed, pipeline_of
from oomproof.data.pipeline.sizes import sizes_of
from oomproof.data.pipeline.walk import read
from oomproof.errors import InputError

ASSUMED = Assumed(cpus=4)


def pipeline(shuffle: int = 200, batch: int = 16, prefetch: int = 4, calls: int = 3, *, whole: bool = False) -> Any:
    images = tf.data.Dataset.range(1000).map(lambda number: tf.zeros((32, 32, 3)), num_parallel_calls=calls)
    return images.shuffle(shuffle).batch(batch, drop_remainder=whole).prefetch(prefetch)


@pytest.mark.parametrize("whole", [False, True], ids=["last smaller", "all whole"])
@pytest.mark.parametrize("size", [1, 8, 64])
def test_another_batch(size: int, whole: bool) -> None:
    changed = pipeline_of(pipeline(whole=whole), ASSUMED, batch=size)
    written = pipeline_of(pipeline(batch=size, whole=whole), ASSUMED)
    assert (changed.expected, changed.high) == (written.expected, written.high)
    assert changed.element.bytes == size * 32 * 32 * 3 * 4


def test_other_sizes() -> None:
    assert sizes_of(read(pipeline())[0]) == sizes(pipeline()) == {"prefetch": 4, "shuffle": 200, "map": 3}
    changed = pipeline_of(pipeline(), ASSUMED, sizes={"shuffle": 50, "prefetch": 1, "map": 1})
    assert changed.expected == pipeline_of(pipeline(50, prefetch=1, calls=1), ASSUMED).expected
    assert changed.expected < pipeline_of(pipeline(), ASSUMED).expected / 2


def test_a_batch_that_comes_from_elsewhere_stays() -> None:
    batches = tf.data.Dataset.from_tensors(tf.zeros((8, 32, 32, 3))).repeat()
    assert pipeline_of(batches, ASSUMED, batch=2).element.bytes == 8 * 32 * 32 * 3 * 4


def test_what_is_no_size_is_refused() -> None:
    with pytest.raises(InputError, match="from 1 on, or -1 for AUTOTUNE"):
        pipeline_of(pipeline(), ASSUMED, sizes={"shuffle": 0})
