"""Draws that follow from a seed: the same in every process, and as they always were outside."""

from __future__ import annotations

from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.slow


def draw(seed: Any) -> list[Any]:
    from oomproof.frameworks.tf_random import drawing_from

    with drawing_from(seed):
        return [
            tf.random.uniform([3]),
            tf.random.uniform([3], 5, 9, tf.int32),
            tf.random.normal([3]),
            tf.random.truncated_normal([3]),
            tf.random.shuffle(tf.range(20)),
            tf.compat.v1.random_uniform([2], seed=4),
            tf.image.sample_distorted_bounding_box([9, 9, 3], [[[0.0, 0.0, 1.0, 1.0]]], min_object_covered=0.1)[0],
        ]


def numbers(seed: Any) -> list[Any]:
    return [each.numpy().tolist() for each in draw(seed)]


def test_draws_follow_from_the_seed() -> None:
    assert numbers([1, 2]) == numbers([1, 2])
    assert numbers([1, 2])[:5] != numbers([1, 3])[:5]
    first, second = (tf.function(draw)(tf.constant([7, step], tf.int64)) for step in (1, 2))
    again = tf.function(draw)(tf.constant([7, 1], tf.int64))
    assert all(bool(tf.reduce_all(a == b)) for a, b in zip(first, again, strict=True))
    assert not all(bool(tf.reduce_all(a == b)) for a, b in zip(first, second, strict=True))


def test_two_draws_of_one_place_are_not_alike() -> None:
    drawn = numbers([1, 2])
    assert drawn[0][:2] != drawn[5]
    assert all(5 <= each < 9 for each in drawn[1])
    assert sorted(drawn[4]) == list(range(20))
    assert drawn[4] != list(range(20))


def test_outside_nothing_has_changed() -> None:
    numbers([1, 2])
    tf.random.set_seed(3)
    first = tf.random.uniform([3]).numpy().tolist(), tf.random.uniform([3]).numpy().tolist()
    tf.random.set_seed(3)
    assert first[0] != first[1]
    assert first == (tf.random.uniform([3]).numpy().tolist(), tf.random.uniform([3]).numpy().tolist())
