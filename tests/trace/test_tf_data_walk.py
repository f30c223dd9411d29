"""Real tf.data datasets are read as the user wrote them, and nothing of them is run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oomproof.data.pipeline import Assumed, Pipeline, pipeline_of
from oomproof.data.pipeline.warnings import warnings_of
from oomproof.errors import InputError

tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed: its datasets cannot be made")

SIDE = 128
IMAGE = SIDE * SIDE * 3 * 4


def image(number: Any) -> Any:
    return tf.fill((SIDE, SIDE, 3), tf.cast(number, tf.float32))


def counts(pipeline: Pipeline) -> dict[str, int]:
    return {each.stage: each.count for each in pipeline.buffers}


def test_every_buffer_is_found_without_running_anything() -> None:
    ran = []

    def never() -> Any:
        ran.append(1)
        yield np.zeros((SIDE, SIDE, 3), np.float32)

    spec = tf.TensorSpec((SIDE, SIDE, 3), tf.float32)
    dataset = tf.data.Dataset.from_generator(never, output_signature=spec)
    dataset = dataset.map(lambda x: x / 255.0, num_parallel_calls=3).shuffle(50).repeat().batch(8).prefetch(2)
    pipeline = pipeline_of(dataset)
    assert not ran
    assert counts(pipeline) == {
        "from_generator": 1,
        "map": 3,
        "shuffle": 50,
        "batch": 8,
        "prefetch": 2,
        "the training loop": 1,
    }
    assert pipeline.element.bytes == 8 * IMAGE
    assert not pipeline.not_counted and not pipeline.assumed


def test_options_decide_what_tensorflow_adds() -> None:
    dataset = tf.data.Dataset.range(100).map(image).batch(4)
    assert "prefetch (added by TensorFlow)" in counts(pipeline_of(dataset))
    options = tf.data.Options()
    options.autotune.enabled = False
    assert list(counts(pipeline_of(dataset.with_options(options)))) == ["map", "batch", "the training loop"]


def test_a_function_with_a_state_is_not_made_parallel() -> None:
    dataset = tf.data.Dataset.range(100).map(lambda x: tf.random.uniform((SIDE, SIDE, 3)))
    assert counts(pipeline_of(dataset, Assumed(cpus=8)))["map"] == 1
    assert (
        counts(pipeline_of(tf.data.Dataset.range(9).map(image), Assumed(cpus=8)))["map (made parallel by TensorFlow)"]
        == 8
    )


def test_caches_in_memory_and_in_a_file(tmp_path: Path) -> None:
    dataset = tf.data.Dataset.range(100).map(image)
    assert counts(pipeline_of(dataset.cache()))["cache"] == 100
    assert "cache" not in counts(pipeline_of(dataset.cache(str(tmp_path / "kept"))))
    endless = dataset.filter(lambda x: x[0, 0, 0] > 3.0)  # how many are left is not known
    assert pipeline_of(endless.cache()).not_counted
    assert counts(pipeline_of(endless.cache(), Assumed(elements=60)))["cache"] == 60
    said = endless.apply(tf.data.experimental.assert_cardinality(40)).cache()
    assert counts(pipeline_of(said))["cache"] == 40


def test_records_decoded_images_and_padded_batches(tmp_path: Path) -> None:
    names = [str(tmp_path / f"{number}.tfrecord") for number in range(6)]

    def decoded(record: Any) -> tuple[Any, Any]:
        return tf.io.decode_jpeg(record, channels=3), 1

    dataset = tf.data.Dataset.from_tensor_slices(names)
    dataset = dataset.interleave(tf.data.TFRecordDataset, cycle_length=4, num_parallel_calls=2)
    dataset = dataset.map(decoded, num_parallel_calls=2).shuffle(1000)
    dataset = dataset.padded_batch(4, padded_shapes=([640, 640, 3], [])).prefetch(1)
    pipeline = pipeline_of(dataset, Assumed(side=600, text=100_000))
    found = counts(pipeline)
    assert found["interleave"] == 6 * 3  # no more than there are files
    assert found["shuffle"] == 1000
    assert pipeline.element.bytes == 4 * (640 * 640 * 3 + 4)
    assert len(pipeline.assumed) == 2  # records and decoded images
    assert not pipeline.not_counted
    [text] = warnings_of(pipeline)
    assert "Put shuffle before map" in text


def test_datasets_made_inside_functions_are_read_too() -> None:
    def windows(window: Any) -> Any:
        return window.batch(5)

    dataset = tf.data.Dataset.range(100).map(image).window(5).flat_map(windows)
    pipeline = pipeline_of(dataset)
    assert pipeline.element.bytes == 5 * IMAGE
    assert counts(pipeline)["window"] == 5

    def file(number: Any) -> Any:
        return tf.data.Dataset.range(10).map(image, num_parallel_calls=1).shuffle(7)

    inner = pipeline_of(tf.data.Dataset.range(100).interleave(file, cycle_length=3))
    assert counts(inner)["shuffle"] == 3 * 7


def test_arrays_and_structures() -> None:
    arrays = {"image": np.zeros((20, SIDE, SIDE, 3), np.float32), "name": np.array([b"abcd"] * 20)}
    pipeline = pipeline_of(tf.data.Dataset.from_tensor_slices(arrays).batch(5, drop_remainder=True))
    assert pipeline.arrays == 20 * (IMAGE + 4 + 24)  # a string is 24 bytes and what it says
    both = tf.data.Dataset.zip(
        (tf.data.Dataset.range(9), tf.data.Dataset.from_tensors(np.zeros(16, np.float32)).repeat())
    )
    assert pipeline_of(both.batch(3)).element.bytes == 3 * (8 + 64)


def test_a_stage_without_a_price_is_named() -> None:
    dataset = tf.data.Dataset.range(9).group_by_window(
        lambda x: x % 2, lambda key, inner: inner.batch(2), window_size=2
    )
    assert any("GroupByWindow" in each for each in pipeline_of(dataset).not_counted)


def test_what_was_made_from_a_graph_is_told_as_not_counted() -> None:
    assert not pipeline_of(tf.data.Dataset.range(9).map(image).enumerate().batch(2)).not_counted
    written = tf.data.Dataset.range(9).map(image)._as_serialized_graph()
    opaque = tf.data.experimental.from_variant(
        tf.raw_ops.DatasetFromGraph(graph_def=written), tf.TensorSpec((SIDE, SIDE, 3), tf.float32)
    )
    assert any("cannot be read" in each for each in pipeline_of(opaque.batch(2)).not_counted)


def test_other_objects_are_refused_in_words() -> None:
    with pytest.raises(InputError, match=r"expected a tf.data.Dataset, got list; give the one"):
        pipeline_of([1, 2])
