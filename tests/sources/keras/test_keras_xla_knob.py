"""``jit_compile`` as a knob: when it is offered, what plans make of it, and what does not go with XLA."""

from __future__ import annotations

from typing import Any

import pytest

from oomproof.errors import InputError
from oomproof.memory.about import About
from oomproof.memory.cards.devices import find_device
from oomproof.memory.settings import Settings

pytest.importorskip("tensorflow", reason="Keras jobs need TensorFlow: pip install 'oomproof[tensorflow]'")

import keras
from keras import layers

import oomproof
from oomproof.changes.keras import apply
from oomproof.changes.keras.applying import compiled_for
from oomproof.sources.job import Knob
from oomproof.sources.keras import knobs, xla
from oomproof.sources.keras.job import KerasJob
from oomproof.sources.keras.knobs import training_knobs
from oomproof.trace.xla import compiler
from oomproof.trace.xla.installed import is_xla_installed

compiling = pytest.mark.skipif(not is_xla_installed(), reason="needs oomproof[xla]")
PLAIN = {"batch": 8, "backend": "tensorflow", "jit_compile": "false", "checkpoint": "none"}
OTHERS = ("batch", "checkpoint", "precision")


def pooling() -> Any:
    """XLA keeps more for it than TensorFlow's executor."""
    first, second = (layers.Conv2D(filters, 3, activation="relu") for filters in (16, 32))
    last = [layers.Flatten(), layers.Dense(10)]
    model = keras.Sequential(
        [keras.Input((128, 128, 3)), first, layers.MaxPooling2D(), second, layers.MaxPooling2D(), *last]
    )
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def residual() -> Any:
    """XLA keeps less for it: it fuses batch normalisation with what follows."""
    x = entry = keras.Input((128, 128, 3))
    x = layers.Conv2D(32, 3, padding="same")(x)
    for number in range(3):
        y = x
        for _ in range(2):
            y = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(32, 3, padding="same")(y)))
        x = layers.Add(name=f"add{number}")([x, y])
    model = keras.Model(entry, layers.Dense(5)(layers.GlobalAveragePooling2D()(x)))
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def knob(**settings: str) -> Knob | None:
    found = {each.name: each for each in training_knobs(Settings({**PLAIN, **settings}), About())}
    return found.get("jit_compile")


def test_xla_is_offered_where_its_compiler_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(knobs, "is_xla_installed", lambda: True)
    offered = knob()
    assert offered is not None and offered.promise == "equivalent"
    assert [option.value for option in offered.options] == ["false", "true"]
    assert offered.options[1].settings == {"jit_compile": "true"}
    assert knob(checkpoint="add1") is None  # XLA may undo it
    assert knob(backend="jax") is None and knob(backend="torch") is None
    monkeypatch.setattr(knobs, "is_xla_installed", lambda: False)
    assert knob() is None


def test_without_xla_is_offered_where_it_is_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(knobs, "is_xla_installed", lambda: False)
    offered = knob(jit_compile="true")
    assert offered is not None and [option.value for option in offered.options] == ["true", "false"]
    assert knob(jit_compile="own", backend="jax") is None


def test_recomputation_under_xla_is_refused() -> None:
    both = {"checkpoint": "add0", "jit_compile": "true"}
    said = "checkpoint=add0 and jit_compile=true do not go together, since XLA may undo recomputation: expected check"
    with pytest.raises(InputError, match=said):
        apply(residual(), both)
    with pytest.raises(InputError, match=said), compiled_for(residual(), both):
        pass
    assert apply(residual(), {**both, "checkpoint": "none"}).jit_compile is True
    assert apply(residual(), {**both, "jit_compile": "false"}).jit_compile is False


def test_what_is_computed_again_is_forecast_without_xla(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xla, "is_xla_installed", lambda: True)
    card = find_device("RTX 3060")
    assert xla.way_of(residual(), {"checkpoint": "none"}, card).target is not None
    way = xla.way_of(residual(), {"checkpoint": "add0"}, card)
    assert way.target is None and "XLA may undo checkpoint=add0" in way.notes[0]


@pytest.mark.thorough
@compiling
@pytest.mark.slow
def test_a_plan_takes_xla_when_nothing_else_fits() -> None:
    compiler._kept.clear()
    job = KerasJob(residual(), batch=16)
    plan = oomproof.fit(job, on="1425MiB", leave=OTHERS)
    assert plan.fits and not plan.before.fits
    [change] = plan.changes
    assert (change.knob, change.after, change.promise) == ("jit_compile", "true", "equivalent")
    assert change.frees == plan.before.on_device.expected - plan.after.on_device.expected > 0
    assert plan.time == pytest.approx(1.0)  # what XLA saves in time is not known, and not claimed
    assert plan.apply(residual()).jit_compile is True
    assert oomproof.check(job, on="1425MiB", **plan.settings).on_device == plan.after.on_device


@pytest.mark.thorough
@compiling
@pytest.mark.slow
def test_nothing_is_compiled_where_something_else_fits() -> None:
    compiler._kept.clear()
    plan = oomproof.fit(KerasJob(residual(), batch=16), on="1425MiB")
    assert plan.fits and "jit_compile" not in [change.knob for change in plan.changes]
    assert not compiler._kept and plan.settings["jit_compile"] == "false"


@pytest.mark.thorough
@compiling
@pytest.mark.slow
def test_a_plan_goes_without_xla_where_that_needs_less() -> None:
    plan = oomproof.fit(
        KerasJob(pooling(), batch=64), on="1150MiB", leave=("batch", "precision", "optimizer"), jit_compile="true"
    )
    assert not plan.before.fits and plan.fits
    assert [(change.knob, change.after) for change in plan.changes] == [("jit_compile", "false")]
    assert plan.apply(pooling()).jit_compile is False
