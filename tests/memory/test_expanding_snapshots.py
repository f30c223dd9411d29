"""Snapshots that are small as files and endless when walked: refused before any work."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from oomproof.errors import DamagedFile
from oomproof.memory.files import snapshot
from oomproof.memory.files.plain_pickle import NotPlain, read_plain
from oomproof.memory.files.snapshot import load_snapshot

EVENT = {"action": "alloc", "addr": 1, "size": 10, "frames": []}
BLOCK = {"size": 1, "state": "active_allocated"}
START = b"\x80\x04"


def nested_tenfold(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value] * 10
    return value


SHARED = {
    "one event a million times": {"device_traces": [[EVENT] * 1_000_000], "segments": []},
    "one segment of many blocks": {"device_traces": [[EVENT]], "segments": [{"blocks": [BLOCK] * 2000}] * 100_000},
    "lists within lists": {"device_traces": nested_tenfold(30), "segments": []},
}


@pytest.mark.parametrize("name", SHARED)
def test_what_is_shared_is_not_walked(tmp_path: Path, name: str) -> None:
    file = tmp_path / "bomb.pickle"
    file.write_bytes(pickle.dumps(SHARED[name], 4))
    with pytest.raises(DamagedFile, match=r"bomb\.pickle: expected"):
        load_snapshot(file)


def test_stacks_without_end_are_looked_at_to_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "MOST_FRAMES", 1000)
    deep = [{"filename": "/lib/site-packages/torch/x.py", "line": number, "name": "f"} for number in range(300)]
    events = [{**EVENT, "addr": number, "frames": list(deep)} for number in range(20)]
    file = tmp_path / "deep.pickle"
    file.write_bytes(pickle.dumps({"device_traces": [events], "segments": []}, 4))
    timeline = load_snapshot(file)
    assert set(timeline.owners) >= {"x.py:0 f", "(no Python frame)"}


@pytest.mark.parametrize("part", [b"K\x01K\x01\x86", b"\x8c\x01a", b"]"], ids=["pairs", "texts", "lists"])
def test_small_objects_without_end(part: bytes) -> None:
    with pytest.raises(NotPlain, match="expected lists, dicts and texts with contents"):
        read_plain(START + b"(" + part * 100_000 + b"l.")
