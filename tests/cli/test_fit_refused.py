"""``oomproof fit`` with bad input: one line on stderr, exit 1, nothing on stdout, before the search has begun."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from planned import Asked, Jotter

Run = Callable[..., Any]
Refused = Callable[..., str]


@pytest.fixture
def refused(run: Run, asked: Asked, tmp_path: Path) -> Refused:
    def refused(*arguments: str) -> str:
        before = sorted(tmp_path.rglob("*"))
        code, out, err = run("fit", *arguments, "--quiet")
        assert (code, out, err.count("\n")) == (1, "", 1), err
        assert "internal error" not in err
        assert not asked.calls
        assert sorted(tmp_path.rglob("*")) == before
        return str(err)

    return refused


def test_promises(refused: Refused, step: str) -> None:
    assert "--keep must be identical or equivalent; got 'exact'" in refused(step, "--on", "8GiB", "--keep", "exact")
    assert "--allow names what" in refused(step, "--on", "8GiB", "--keep", "different")


@pytest.mark.parametrize("names", ["", "a,,b", ","])
def test_names(refused: Refused, step: str, names: str) -> None:
    assert "--allow wants names" in refused(step, "--on", "8GiB", "--allow", names)


def test_settings_named_like_an_argument(refused: Refused, step: str) -> None:
    assert "--set keep=...: oomproof.fit has an argument of that name" in refused(step, "--set", "keep=3")


def test_devices_and_jobs(refused: Refused, step: str) -> None:
    assert "RTX 3061" in refused(step, "--on", "RTX 3061")
    assert "no-such.timeline" in refused("no-such.timeline", "--on", "8GiB")
    assert "JOB" in refused("--on", "8GiB").upper()
    assert "JOB" in refused("--on", "8GiB", "--write").upper()


def test_a_saved_step_cannot_be_written(refused: Refused, step: str) -> None:
    assert "saved step" in refused(step, "--on", "8GiB", "--write")
    assert "saved step" in refused(step, "--on", "8GiB", "--write", "somewhere.json")


def test_targets(refused: Refused, jotter: Jotter, tmp_path: Path) -> None:
    on = ("--on", "8GiB", "--write")
    assert "is a folder" in refused("jot", *on, str(tmp_path))
    assert "there is no folder" in refused("jot", *on, str(tmp_path / "no" / "file.json"))
    jotter.place = tmp_path / "gone" / "file.json"
    assert "there is no folder" in refused("jot", *on)


def test_read_only_targets(refused: Refused, jotter: Jotter, tmp_path: Path) -> None:
    on = ("--on", "8GiB", "--write")
    jotter.place.write_text("{}")
    jotter.place.chmod(0o444)
    assert "read-only" in refused("jot", *on)
    assert "read-only" in refused("jot", *on, str(jotter.place))
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o555)
    assert "read-only" in refused("jot", *on, str(locked / "new.json"))


def test_settings_files(refused: Refused, step: str, tmp_path: Path) -> None:
    assert "no-such.json" in refused(step, "--on", "8GiB", "--from", "no-such.json")
    (tmp_path / "other.json").write_text("[]")
    assert "other.json" in refused(step, "--on", "8GiB", "--from", str(tmp_path / "other.json"))
