"""Calls that make a tf.function trace again are counted without tracing, as TensorFlow counts them itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oomproof.data.pipeline.retracing import PER_OPERATION, count_retracing
from oomproof.errors import InputError

tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed: nothing can be traced")

SHAPES = [(np.ones((2, side), np.float32),) for side in (3, 4, 5, 6)]
CALLS = {
    "shapes": (SHAPES, {}),
    "tensors": ([(tf.ones((2, side)),) for side in (3, 4, 5, 3, 4)], {}),
    "one shape": ([(tf.ones((2, 3)) * value,) for value in (1.0, 2.0, 3.0)], {}),
    "Python numbers": ([(1,), (2,), (3,)], {}),
    "numpy scalars": ([(np.float32(1),), (np.float32(2),), (np.float32(3),)], {}),
    "signature": (SHAPES, {"input_signature": [tf.TensorSpec((2, None), tf.float32)]}),
    "relaxed": (SHAPES, {"reduce_retracing": True}),
}


def add_one(x: Any) -> Any:
    return x + 1


@pytest.mark.parametrize("name", CALLS)
def test_graphs_are_counted_as_tensorflow_makes_them(name: str) -> None:
    calls, options = CALLS[name]
    function = tf.function(add_one, **options)
    said = count_retracing(function, calls)
    assert function.experimental_get_tracing_count() == 0  # nothing was traced for the answer
    for call in calls:
        function(*call)
    assert said.graphs == function.experimental_get_tracing_count()


def test_growth_is_said_with_its_reason_and_its_price() -> None:
    function = tf.function(add_one)
    function(*SHAPES[0])
    growing = count_retracing(function, SHAPES)
    assert growing.grows and growing.bytes == 4 * growing.operations * PER_OPERATION > 0
    assert "4 calls make 4 graphs" in growing.warning and "(2, 3), (2, 4), (2, 5), ..." in growing.warning
    assert "Python int with another value" in count_retracing(tf.function(add_one), [(1,), (2,), (3,)]).warning
    assert not count_retracing(function, SHAPES[:2]).warning  # a smaller last batch is not growth


def test_a_plain_function_is_refused_in_words() -> None:
    with pytest.raises(InputError, match=r"expected a tf.function, got function; give the function that"):
        count_retracing(add_one, SHAPES)
