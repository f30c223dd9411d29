"""Settings files: read as written, never half-written, and plain words about the ones that are neither."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from oomproof.changes.settings_file import read_settings, write_settings
from oomproof.errors import DamagedFile, InputError

SETTINGS = {
    "batch": 4,
    "image_size": (800, 1333),
    "checkpoint": "backbone:1",
    "ema": False,
    "lr": 0.5,
    "nested": {"a": (1,)},
}


def test_what_was_written_is_read(tmp_path: Path) -> None:
    path = write_settings(tmp_path / "new" / "job.oomproof.json", "job.py:job", "RTX 3060", SETTINGS, ["batch 16 -> 4"])
    assert read_settings(path) == read_settings(str(path)) == SETTINGS
    content = json.loads(path.read_text())
    assert content["oomproof"] == 1 and content["job"] == "job.py:job" and content["device"] == "RTX 3060"
    assert content["changes"] == ["batch 16 -> 4"]
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_the_first_file_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    path.write_text("what the user had")
    path.chmod(0o600)
    for batch in (1, 2):
        write_settings(path, "", "", {"batch": batch})
    assert read_settings(path) == {"batch": 2}
    assert (tmp_path / "s.json.orig").read_text() == "what the user had"
    assert path.stat().st_mode & 0o777 == 0o600
    assert len(list(tmp_path.iterdir())) == 2


def test_what_cannot_be_written_changes_nothing(tmp_path: Path) -> None:
    path = write_settings(tmp_path / "s.json", "", "", {"batch": 1})
    for value in (object(), float("nan")):
        with pytest.raises(InputError, match="settings must be numbers, texts"):
            write_settings(path, "", "", {"batch": value})
    assert read_settings(path) == {"batch": 1}
    with pytest.raises(InputError, match=r"the settings file .*s\.json/x cannot be written: "):
        write_settings(path / "x", "", "", {})


def test_a_folder_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "s.json").mkdir()
    with pytest.raises(InputError, match="cannot be written: a folder, not a file"):
        write_settings(tmp_path / "s.json", "", "", {})
    assert [each.name for each in tmp_path.iterdir()] == ["s.json"]


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("{", DamagedFile, "should be a settings file in JSON; line 1"),
        ("[1]", DamagedFile, 'it has no "oomproof"'),
        ('{"settings": {}}', DamagedFile, 'it has no "oomproof"'),
        ('{"oomproof": 2, "settings": {}}', InputError, "is of format 2, and this oomproof reads format 1"),
        ('{"oomproof": 1}', DamagedFile, 'should hold "settings", an object; it holds none'),
        ('{"oomproof": 1, "settings": [1]}', DamagedFile, "it holds a list"),
        (
            '{"oomproof": 1, "settings": {}, "own": 3}',
            DamagedFile,
            '"own", a list of names; it holds a int',
        ),
    ],
)
def test_files_that_are_none(tmp_path: Path, text: str, kind: type[Exception], message: str) -> None:
    path = tmp_path / "s.json"
    path.write_text(text)
    with pytest.raises(kind, match=message) as raised:
        read_settings(path)
    assert str(path) in str(raised.value) and "\n" not in str(raised.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    def refused(path: Any, message: str) -> None:
        with pytest.raises(InputError, match=message):
            read_settings(path)

    refused(tmp_path / "none.json", "cannot be read: No such file")
    refused(tmp_path, "cannot be read: a folder, not a file")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    refused(tmp_path / "bytes", "not a text in UTF-8")


@pytest.mark.parametrize(
    ("value", "message"),
    [("[" * 100_000 + "]" * 100_000, "nested too deeply"), ("9" * 5000, "a number of thousands of digits")],
)
def test_files_that_are_more_than_python_reads(tmp_path: Path, value: str, message: str) -> None:
    (tmp_path / "s.json").write_text(f'{{"oomproof": 1, "settings": {{"batch": {value}}}}}')
    with pytest.raises(DamagedFile, match=message):
        read_settings(tmp_path / "s.json")
