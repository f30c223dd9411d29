"""Random operations of TensorFlow whose draws follow from a seed that the caller gives, not from what was drawn before.

TensorFlow's ordinary random operations keep their state in the process: a training that goes on in another process
draws anew. Inside ``drawing_from`` they are replaced by their stateless counterparts, so that the draws for a record,
or for a step, are a function of its number. Made for TensorFlow 2.16 to 2.21, whose ``tf.random`` and ``tf.image`` call
the operations below by these names; a random operation that is not among them draws as it always did.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from oomproof.frameworks.versions import TENSORFLOW

with TENSORFLOW.names_needed():
    from tensorflow.python.ops import gen_image_ops, gen_random_ops


class _Draws(threading.local):
    """The seed in force, for each thread (MirroredStrategy traces a replica in a thread of its own)."""

    seed: Any = None
    count: int = 0


_draws = _Draws()
_replaced: list[str] = []


@contextlib.contextmanager
def drawing_from(seed: Any) -> Iterator[None]:
    """Every random operation that is built inside draws from ``seed`` (two whole numbers) and from its place among
    the others. In a loop of the graph each turn draws the same."""
    _replace_operations()
    before = _draws.seed, _draws.count
    _draws.seed, _draws.count = seed, 0
    try:
        yield
    finally:
        _draws.seed, _draws.count = before


def _next_seed() -> Any:
    _draws.count += 1
    return tf.random.fold_in(_draws.seed, _draws.count)


def _replace_operations() -> None:
    if _replaced:
        return
    for module, name, stateless in (
        (gen_random_ops, "random_uniform", _uniform),
        (gen_random_ops, "random_uniform_int", _uniform_int),
        (gen_random_ops, "random_standard_normal", _normal),
        (gen_random_ops, "truncated_normal", _draw_truncated_normal),
        (gen_random_ops, "random_shuffle", _shuffle),
        (gen_random_ops, "multinomial", _multinomial),
        (gen_image_ops, "sample_distorted_bounding_box_v2", _box),
    ):
        setattr(module, name, _choose_by_seed(getattr(module, name), stateless))
        _replaced.append(name)


def _choose_by_seed(stateful: Callable[..., Any], stateless: Callable[..., Any]) -> Callable[..., Any]:
    def draw(*args: Any, **kwargs: Any) -> Any:
        return (stateful if _draws.seed is None else stateless)(*args, **kwargs)

    return draw


def _uniform(shape: Any, dtype: Any, **_: Any) -> Any:
    return tf.random.stateless_uniform(shape, _next_seed(), dtype=dtype)


def _uniform_int(shape: Any, minval: Any, maxval: Any, **_: Any) -> Any:
    return tf.random.stateless_uniform(shape, _next_seed(), minval, maxval, tf.convert_to_tensor(minval).dtype)


def _normal(shape: Any, dtype: Any, **_: Any) -> Any:
    return tf.random.stateless_normal(shape, _next_seed(), dtype=dtype)


def _draw_truncated_normal(shape: Any, dtype: Any, **_: Any) -> Any:
    return tf.random.stateless_truncated_normal(shape, _next_seed(), dtype=dtype)


def _shuffle(value: Any, **_: Any) -> Any:
    return tf.random.experimental.stateless_shuffle(value, _next_seed())


def _multinomial(logits: Any, num_samples: Any, output_dtype: Any = tf.int64, **_: Any) -> Any:
    return tf.random.stateless_categorical(logits, num_samples, _next_seed(), output_dtype)


def _box(image_size: Any, bounding_boxes: Any, min_object_covered: Any, **how: Any) -> Any:
    named = {name: value for name, value in how.items() if name not in ("seed", "seed2", "name")}
    return gen_image_ops.stateless_sample_distorted_bounding_box(
        image_size, bounding_boxes, min_object_covered, _next_seed(), **named
    )
