"""Knobs of a tf.data pipeline, and the dataset that they make: the same elements from smaller buffers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oomproof.errors import InputError

tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed: its datasets cannot be made")

from oomproof.changes.keras.pipeline import MAX_ARRAYS, describe_call, rebuild_dataset  # noqa: E402  imports Keras
from oomproof.data.pipeline import pipeline_of  # noqa: E402
from oomproof.sources.keras.pipeline_knobs import pipeline_knobs  # noqa: E402


def numbers() -> Any:
    for number in range(100):
        yield np.full(4096, number, np.float32)


def dataset() -> Any:
    made = tf.data.Dataset.from_generator(numbers, output_signature=tf.TensorSpec((4096,), tf.float32))
    made = made.shuffle(64, seed=1).map(lambda x: x + 1, num_parallel_calls=8)
    return made.batch(5).shuffle(20, seed=2).prefetch(6)


def firsts(made: Any) -> list[float]:
    return [float(each) for batch in made for each in batch[:, 0]]


def test_every_buffer_is_a_knob_from_what_is_there_to_the_thriftiest() -> None:
    knobs = {knob.name: knob for knob in pipeline_knobs(pipeline_of(dataset()))}
    assert {name: [option.value for option in knob.options] for name, knob in knobs.items()} == {
        "prefetch": [6, 4, 2, 1],
        "map": [8, 4, 2, 1],
        "shuffle_2": [64, 32, 16],
    }  # the shuffle of 20 batches is as small as one should be
    assert knobs["shuffle_2"].promise == "different" and knobs["prefetch"].promise == "identical"
    assert knobs["shuffle_2"].options[1].note == "keeps 512 KiB"
    assert [option.harm for option in knobs["shuffle_2"].options] == [0.0, 0.05, 0.1]


def test_prefetch_and_parallel_calls_keep_every_batch_as_it_is() -> None:
    before, after = dataset(), rebuild_dataset(dataset(), {"prefetch": 1, "map": 2})
    assert firsts(after) == firsts(before)
    assert after.element_spec == before.element_spec


def test_a_smaller_shuffle_gives_the_same_elements() -> None:
    after = rebuild_dataset(dataset(), {"shuffle": 1, "shuffle_2": 1})
    assert firsts(after) == [number + 1.0 for number in range(100)]  # a buffer of one does not shuffle at all
    mixed = firsts(rebuild_dataset(dataset(), {"shuffle_2": 16}))
    assert sorted(mixed) == [number + 1.0 for number in range(100)] and mixed != sorted(mixed)


def test_options_go_on() -> None:
    options = tf.data.Options()
    options.deterministic = False
    assert rebuild_dataset(dataset().with_options(options), {"prefetch": 1}).options().deterministic is False


def test_what_cannot_be_set_is_said() -> None:
    with pytest.raises(InputError, match="the dataset has no shufle with a size to set; did you mean shuffle"):
        rebuild_dataset(dataset(), {"shufle": 3})
    with pytest.raises(InputError, match="prefetch=0 is not a size; expected a whole number from 1 on"):
        rebuild_dataset(dataset(), {"prefetch": 0})


def test_large_arrays_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = tf.data.Dataset.from_tensor_slices(np.zeros((64, 256), np.float32)).shuffle(64)
    assert MAX_ARRAYS > 64 << 10
    assert len(list(rebuild_dataset(arrays, {"shuffle": 16}))) == 64
    monkeypatch.setattr("oomproof.changes.keras.pipeline.MAX_ARRAYS", 1 << 10)
    with pytest.raises(InputError, match=r"change shuffle\(16\) where the pipeline is written"):
        rebuild_dataset(arrays, {"shuffle": 16})


def test_changes_are_said_as_code() -> None:
    assert describe_call(("prefetch", -1)) == "prefetch(tf.data.AUTOTUNE)"
    assert describe_call(("map_2", 4)) == "map(..., num_parallel_calls=4)"
