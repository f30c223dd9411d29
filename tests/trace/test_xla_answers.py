"""What XLA's compiler said is kept between processes, and a cache that is damaged or closed is no cache."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from oomproof.trace.xla import answers

FACTS = {"sizes": {"temp": 12}, "version": "0.10.2"}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "oomproof" / "xla"


def test_what_was_kept_is_recalled(cache: Path) -> None:
    assert answers.recall("key") is None
    answers.keep_answer("key", FACTS, b"a plan")
    assert answers.recall("key") == (FACTS, b"a plan")
    assert [each.name for each in cache.iterdir()] == ["key"]


@pytest.mark.parametrize("content", [b"", b"something else", b"oomproof xla answer 1\n{}\nnot packed", b"\0" * 99])
def test_a_damaged_answer_is_none(cache: Path, content: bytes) -> None:
    answers.keep_answer("key", FACTS, b"a plan")
    (cache / "key").write_bytes(content)
    assert answers.recall("key") is None


def test_an_answer_that_was_cut_short_is_none(cache: Path) -> None:
    answers.keep_answer("key", FACTS, b"a plan" * 1000)
    whole = (cache / "key").read_bytes()
    (cache / "key").write_bytes(whole[:-4])
    assert answers.recall("key") is None


def test_a_home_that_cannot_be_written_keeps_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    answers.keep_answer("key", FACTS, b"a plan")
    assert answers.recall("key") is None


def test_the_longest_unasked_go_first(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, key in enumerate("abc"):
        answers.keep_answer(key, FACTS, os.urandom(1000))
        os.utime(cache / key, (number, number))
    assert answers.recall("a")  # asked for now
    monkeypatch.setattr(answers, "MOST_KEPT", 3500)
    answers.keep_answer("d", FACTS, os.urandom(1000))
    assert {each.name for each in cache.iterdir()} == {"a", "c", "d"}
