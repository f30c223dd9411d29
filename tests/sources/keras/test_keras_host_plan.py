"""Plans that make the buffers of a tf.data pipeline smaller, for a host with little RAM."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("tensorflow", reason="Keras jobs need TensorFlow: pip install 'oomproof[tensorflow]'")
import keras
import tensorflow as tf

import oomproof
from oomproof.sources import open_job
from oomproof.sources.job import ReadsData
from oomproof.sources.keras.job import KerasJob
from oomproof.sources.settings import resolve
from oomproof.trace.request import TraceRequest

MIB = 1 << 20
SIDE = 64


def net() -> Any:
    model = keras.Sequential([keras.Input((SIDE, SIDE, 3)), keras.layers.Conv2D(2, 3), keras.layers.Flatten()])
    model.add(keras.layers.Dense(1))
    model.compile("sgd", "mse")
    return model


def images(batch: int = 4) -> Any:
    """Elements of 48 KiB, counted from 0."""
    made = tf.data.Dataset.range(2000).map(
        lambda number: (tf.fill((SIDE, SIDE, 3), tf.cast(number, tf.float32)), tf.zeros((1,))), num_parallel_calls=8
    )
    return made.shuffle(800, seed=1).batch(batch).prefetch(64)


def job() -> KerasJob:
    return KerasJob(net(), images())


def upper(**settings: Any) -> int:
    return oomproof.check(job(), "8GiB", **settings).host.high


def test_prefetch_is_turned_before_anything_is_mixed_less() -> None:
    ram = upper(prefetch=8)
    plan = oomproof.fit(job(), "8GiB", ram=ram)
    assert plan.fits and not plan.before.fits and plan.promise == "identical"
    [change] = plan.changes
    assert (change.knob, change.before, change.after, change.frees) == ("prefetch", 64, 8, 0)
    assert change.frees_host == plan.before.host.high - plan.after.host.high > 10 * MIB
    assert plan.after.host == oomproof.check(job(), "8GiB", **plan.settings).host
    assert any("the input pipeline keeps" in note for note in plan.after.notes)


def test_a_shuffle_is_turned_where_it_is_allowed() -> None:
    ram = upper(prefetch=1, shuffle=400)
    plan = oomproof.fit(job(), "8GiB", ram=ram)
    assert not plan.fits and plan.after.on_device_outcome == "fits" and plan.after.host_outcome == "at risk"
    assert plan.needs[0].startswith("--allow shuffle: prefetch 1, shuffle 400 would fit")
    plan = oomproof.fit(job(), "8GiB", ram=ram, allow=["shuffle"])
    assert plan.fits and plan.promise == "different"
    assert [(change.knob, change.after) for change in plan.changes] == [("prefetch", 1), ("shuffle", 400)]


def test_the_dataset_that_a_plan_makes_has_its_sizes() -> None:
    plan = oomproof.fit(job(), "8GiB", ram=upper(prefetch=8))
    assert next(iter(plan.batches(images())))[0].shape == (4, SIDE, SIDE, 3)
    firsts = [[float(batch[0][0, 0, 0, 0]) for batch in made.take(3)] for made in (images(), plan.batches(images()))]
    assert firsts[0] == firsts[1]  # the same batches in the same order


@pytest.mark.parametrize("own", [False, True], ids=["settings", "parameter"])
def test_data_are_priced_as_a_trace_prices_them(own: bool, tmp_path: Any) -> None:
    file = tmp_path / f"host_job_{own}.py"
    parameter = "batch: int = 4" if own else ""
    file.write_text(
        "import sys\n"
        f"sys.path.insert(0, {str(__file__.rpartition('/')[0])!r})\n"
        "from test_keras_host_plan import images, net\n"
        "import oomproof\n"
        f"def job({parameter}):\n"
        f"    return oomproof.KerasJob(model=net(), data=images({'batch' if own else ''}))\n"
    )
    opened = open_job(f"{file}:job")
    assert isinstance(opened, ReadsData)
    settings = resolve(opened, {"batch": 8, "prefetch": 3})
    price = opened.price_data(settings)
    for changed in ({}, {"shuffle": 100}, {"prefetch": 1, "map": 2}):
        facts = price(settings.with_values(changed))
        about = opened.trace(TraceRequest(settings.with_values(changed))).about
        assert {name: getattr(about, name) for name in ("pipeline", "pipeline_high")} == {
            name: facts[name] for name in ("pipeline", "pipeline_high")
        }
