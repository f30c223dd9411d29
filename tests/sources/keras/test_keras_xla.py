"""Which way a Keras step is forecast: compiled by XLA, or operation by operation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from oomproof.errors import InputError
from oomproof.memory.cards.devices import find_device
from oomproof.memory.settings import Settings
from oomproof.sources.keras.compiled import MaybeCompiled

pytest.importorskip("keras")

import keras
from keras import layers

import oomproof
from oomproof.changes.keras import apply
from oomproof.sources import open_job
from oomproof.sources.keras import xla
from oomproof.sources.keras.xla import XlaChoice, as_switch
from oomproof.trace.xla import installed

JOB = """
import keras

def job(jit: str = "auto"):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    model.compile("sgd", "mse", jit_compile=jit == "true" if jit != "auto" else "auto")
    return model
"""


def net(**given: Any) -> Any:
    model = keras.Sequential([keras.Input((4,)), layers.Dense(2)])
    model.compile("sgd", "mse", **given)
    return model


@pytest.fixture
def with_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """The decision alone; nothing is compiled."""
    monkeypatch.setattr(xla, "is_xla_installed", lambda: True)
    monkeypatch.setattr(xla, "require_xla", lambda what: None)


def way_of(model: Any, settings: dict[str, str]) -> XlaChoice:
    return xla.way_of(model, settings, find_device("RTX 3060"))


def compiled(way: XlaChoice) -> bool:
    return way.target is not None


@pytest.mark.usefixtures("with_extra")
def test_what_keras_would_compile_on_a_gpu_is_compiled() -> None:
    unseen = net()
    xla._asked.pop(unseen, None)  # an earlier test may have opened a file, and compile() is watched since
    way = way_of(unseen, {})
    assert compiled(way)
    assert "for the RTX 3060 12GB; that plan was never held against a GPU" in way.notes[0]
    assert "cannot be told" in way.notes[0]
    assert "cannot be told" not in way_of(net(jit_compile=True), {}).notes[0]
    assert compiled(way_of(net(), {"jit_compile": "true"}))
    assert compiled(way_of(net(), {"backend": "jax"}))
    assert not compiled(way_of(net(jit_compile=True), {"jit_compile": "false"}))


@pytest.mark.usefixtures("with_extra")
def test_what_keras_would_not_compile_is_not() -> None:
    assert "run_eagerly" in way_of(net(run_eagerly=True), {}).notes[0]
    model = net()
    model.layers[0].supports_jit = False
    way = way_of(model, {})
    assert not compiled(way)
    assert f"the layer {model.layers[0].name} does not support XLA" in way.notes[0]
    with pytest.raises(InputError, match="Keras on JAX is forecast as XLA compiles it"):
        way_of(net(), {"backend": "jax", "jit_compile": "false"})


def test_without_the_extra_the_note_says_what_the_figure_is_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xla, "is_xla_installed", lambda: False)
    way = way_of(net(), {})
    assert not compiled(way)
    assert way.notes[0].startswith("for compile(jit_compile=False)")
    assert "pip install 'oomproof[xla]'" in way.notes[0]


@pytest.mark.parametrize("asked", [{"jit_compile": "true"}, {"backend": "jax"}])
def test_asking_for_xla_without_the_extra_is_refused(asked: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "_version", lambda name: "")
    with pytest.raises(InputError, match=r"pip install 'oomproof\[xla\]'"):
        oomproof.check(net(), on="8GiB", **asked)


@pytest.mark.usefixtures("with_extra")
def test_a_file_that_says_no_is_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = next(each for each in keras.Model.__mro__ if "compile" in vars(each))
    monkeypatch.setattr(home, "compile", home.compile)  # put back afterwards
    (tmp_path / "xla_said.py").write_text(JOB)
    job: Any = open_job(f"{tmp_path}/xla_said.py:job", ())
    said = {jit: way_of(job._job(Settings({"jit": jit})).made, {}) for jit in ("auto", "true", "false")}
    assert (compiled(said["auto"]), compiled(said["true"])) == (True, True)
    assert "cannot be told" not in said["auto"].notes[0]
    assert not compiled(said["false"])
    assert "compile() says so" in said["false"].notes[0]


def for_plans(values: dict[str, Any]) -> Settings:
    return MaybeCompiled().settings_for_plans(Settings(values))


def test_plans_are_for_jit_compile_false_unless_asked() -> None:
    assert for_plans({"jit_compile": "own", "backend": "tensorflow"})["jit_compile"] == "false"
    assert for_plans({"jit_compile": "true", "backend": "tensorflow"})["jit_compile"] == "true"
    assert for_plans({"jit_compile": "own", "backend": "jax"})["jit_compile"] == "own"
    assert for_plans({"batch": 2}) == {"batch": 2}
    assert apply(net(), {"accumulate": 2}).jit_compile is False
    assert apply(net(), {"accumulate": 2, "jit_compile": "true"}).jit_compile is True


def test_the_setting_is_read_as_text_and_as_python() -> None:
    assert [as_switch(value) for value in (True, "False", "auto", "own")] == ["true", "false", "own", "own"]
    with pytest.raises(InputError, match="jit_compile must be one of own, true, false; got 'maybe'"):
        as_switch("maybe")


@pytest.mark.usefixtures("with_extra")
def test_what_cudnn_computes_is_not_compiled() -> None:
    """On a GPU, Keras takes cuDNN's LSTM, and then leaves XLA out."""

    def text(**how: Any) -> Any:
        model = keras.Sequential([keras.Input((6, 3)), layers.LSTM(4, name="reader", **how)])
        model.compile("sgd", "mse")
        return model

    assert "reader does not support XLA on a GPU, where cuDNN computes it" in way_of(text(), {}).notes[0]
    assert way_of(text(), {}).target is None
    assert way_of(text(use_cudnn=False), {}).target is not None
    with pytest.raises(InputError, match=r"reader.*use_cudnn=False"):
        way_of(text(), {"jit_compile": "true"})
