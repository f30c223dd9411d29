"""Timeline files: what is saved comes back, and no file can hurt the one who loads it."""

from __future__ import annotations

import io
import json
import os
import pickle
import random
import signal
import stat
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from histories import timelines
from hypothesis import HealthCheck, given, settings

from oomproof.errors import DamagedFile, InputError
from oomproof.memory.about import About
from oomproof.memory.files import timeline_file
from oomproof.memory.files.timeline_check import BLOCKS, CALLS, MARKS, SHAPE
from oomproof.memory.files.timeline_file import HEADER, load_timeline, save
from oomproof.memory.timeline import Builder, Timeline


def example() -> Timeline:
    step = Builder()
    weights = step.allocate(4 << 20, kind="parameter", owner="fc", op="parameter")
    step.enter("forward")
    step.call(owner="fc", spec={"op": "conv2d", "shape": [1, 3, 8, 8]})
    out = step.allocate(1 << 20, kind="activation", owner="fc.out", op="addmm", shape=(8, 32))
    step.free(out)
    step.set_owner(weights, "fc")
    return step.build(About(job="example", not_counted=("nothing",)))


def assert_same(a: Timeline, b: Timeline) -> None:
    for name in (*BLOCKS, *MARKS, SHAPE):
        assert np.array_equal(getattr(a, name), getattr(b, name)), name
        assert getattr(b, name).dtype == np.int64
    for name in CALLS:
        assert np.array_equal(getattr(a.calls, name[5:]), getattr(b.calls, name[5:])), name
    assert (a.ticks, a.owners, a.ops, a.calls.specs, a.about) == (b.ticks, b.owners, b.ops, b.calls.specs, b.about)
    assert a.shapes == b.shapes


def exercise(timeline: Timeline) -> None:
    """Everything a Timeline answers; a file that passed the checks must not make any of it fail."""
    peak = timeline.peak()
    assert sum(timeline.by_kind(peak.tick).values()) == peak.bytes
    assert timeline.curve().min(initial=0) >= 0
    timeline.by_phase()
    timeline.by_owner(peak.tick)
    timeline.with_scratch(np.ones(len(timeline.calls), dtype=np.int64)).peak()
    json.dumps(timeline.about.as_header(), ensure_ascii=False).encode()
    "".join((*timeline.owners, *timeline.ops)).encode()


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(timelines())
def test_what_is_saved_comes_back(tmp_path: Path, timeline: Timeline) -> None:
    save(timeline, tmp_path / "step.npz")
    loaded = load_timeline(tmp_path / "step.npz")
    assert_same(timeline, loaded)
    exercise(loaded)


def test_a_file_of_before_shapes_is_still_read(tmp_path: Path) -> None:
    contents = members(tmp_path)
    del contents["shape.npy"]
    old = json.loads(contents[HEADER])
    del old["shapes"]
    contents[HEADER] = json.dumps(old).encode()
    (tmp_path / "old.npz").write_bytes(packed(contents))
    loaded = load_timeline(tmp_path / "old.npz")
    assert (loaded.shape.tolist(), loaded.shapes) == ([0, 0], (None,))
    assert loaded.bytes.tolist() == example().bytes.tolist()
    exercise(loaded)


def test_numpy_itself_can_read_it(tmp_path: Path) -> None:
    save(example(), tmp_path / "step.npz")
    with np.load(tmp_path / "step.npz", allow_pickle=False) as arrays:
        assert arrays["bytes"].tolist() == [4 << 20, 1 << 20]


def test_names_that_no_terminal_should_see(tmp_path: Path) -> None:
    odd = About(details={"ratio": float("nan"), "at": Path("x")})
    hostile = replace(example(), owners=("fc\x1b[2J", "half \ud800"), about=odd)
    save(hostile, tmp_path / "step.npz")
    loaded = load_timeline(tmp_path / "step.npz")
    assert loaded.owners == ("fc?[2J", "half ?")
    assert loaded.about.details == {"ratio": "nan", "at": "x"}


def test_a_saved_file_is_an_ordinary_one(tmp_path: Path) -> None:
    path = tmp_path / "step.npz"
    save(example(), path)
    plain = tmp_path / "plain"
    plain.touch()
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)
    save(example(), path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["plain", "step.npz"]


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "step.npz"
    path.write_bytes(b"old")
    broken = replace(example(), born=np.array(["not a number"]))
    with pytest.raises(ValueError, match="not a number"):
        save(broken, path)
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["step.npz"]


@pytest.mark.thorough
def test_ctrl_c_leaves_nothing_behind(tmp_path: Path) -> None:
    code = (
        "import sys, numpy as np\n"
        "from oomproof.memory.timeline import *; from oomproof.memory.files.timeline_file import save\n"
        "n = 1_900_000; r = np.random.default_rng(0).integers(0, 2**40, n); z = np.zeros(n, np.int64)\n"
        "t = Timeline(r, r, r, r, r, r, r, (), (), Calls(z, z, z, z, ()), z, z, n)\n"
        "print('ready', flush=True)\n"
        "save(t, sys.argv[1])"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "step.npz")],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    deadline = time.monotonic() + 10
    while not list(tmp_path.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.001)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    assert process.returncode != 0, "the signal must have come before the end"
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot write .*No such file"):
        save(example(), tmp_path / "no" / "step.npz")
    with pytest.raises(InputError, match="there is no file"):
        load_timeline(tmp_path / "no.npz")
    with pytest.raises(InputError, match="is not a file"):
        load_timeline(tmp_path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs a named pipe")
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="is not a file"):
        load_timeline(tmp_path / "pipe")


def members(tmp_path: Path) -> dict[str, bytes]:
    save(example(), tmp_path / "good.npz")
    with zipfile.ZipFile(tmp_path / "good.npz") as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def packed(contents: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, content in contents.items():
            archive.writestr(name, content)
    return file.getvalue()


def npy(values: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, values, allow_pickle=True)
    return file.getvalue()


def row(*values: int) -> bytes:
    return npy(np.array(values, dtype="<i8"))


def header(**changes: Any) -> Callable[[dict[str, bytes]], None]:
    def change(contents: dict[str, bytes]) -> None:
        contents[HEADER] = json.dumps(json.loads(contents[HEADER]) | changes).encode()

    return change


class Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("executed",)


HOSTILE: dict[str, tuple[Callable[[dict[str, bytes]], Any], str]] = {
    "a pickle": (lambda c: c.update({"born.npy": npy(np.array([Bomb(), 1], dtype=object))}), "64-bit integers"),
    "floats": (lambda c: c.update({"born.npy": npy(np.zeros(2))}), "64-bit integers"),
    "a table": (lambda c: c.update({"born.npy": npy(np.zeros((2, 1), dtype="<i8"))}), "64-bit integers"),
    "a longer column": (lambda c: c.update({"born.npy": row(0, 1, 2)}), "columns of one length"),
    "a lying column": (lambda c: c.update({"born.npy": row(0, 1) + b"12345678"}), "16 bytes of numbers; found 24"),
    "a missing member": (lambda c: c.pop("born.npy"), "14 members that are not these"),
    "one more member": (lambda c: c.update({"../../evil.npy": row(0)}), "16 members"),
    "born at death": (lambda c: c.update({"born.npy": row(0, 4)}), "born before it dies"),
    "born before time": (lambda c: c.update({"born.npy": row(-1, 3)}), "born: expected numbers from 0"),
    "dead after the end": (lambda c: c.update({"died.npy": row(5, 7)}), "died: expected"),
    "negative bytes": (lambda c: c.update({"bytes.npy": row(1, -1)}), "bytes: expected"),
    "bytes that overflow": (lambda c: c.update({"bytes.npy": row(2**59, 2**59)}), "1048576 TiB together"),
    "a kind that is none": (lambda c: c.update({"kind.npy": row(0, 8)}), "kind: expected"),
    "an owner that is none": (lambda c: c.update({"owner.npy": row(0, 2)}), "owner: expected"),
    "a shape that is none": (lambda c: c.update({"shape.npy": row(0, 2)}), "shape: expected numbers from 0 to below 2"),
    "fewer shapes than blocks": (lambda c: c.update({"shape.npy": row(0)}), "a shape of each of 2 blocks; found 1"),
    "no shapes": (header(shapes=None), "«shapes» to be a list of lists"),
    "shapes that are texts": (header(shapes=[None, ["<b>"]]), "«shapes» to be a list of lists"),
    "sides that are none": (header(shapes=[None, [-1]]), "«shapes» to be a list of lists"),
    "sides without end": (header(shapes=[None, [1] * 65]), "«shapes» to be a list of lists"),
    "a call past the end": (lambda c: c.update({"call_tick.npy": row(4)}), "call_tick: expected"),
    "marks out of order": (
        lambda c: c.update({"mark_tick.npy": row(3, 1), "mark_phase.npy": row(0, 1)}),
        "order of their ticks",
    ),
    "ticks without events": (header(ticks=10**11), "ticks for 6 events; found 100000000000"),
    "ticks that are not a number": (header(ticks=True), "ticks for 6 events; found True"),
    "a spec without op": (header(specs=["{}"]), "with the text «op»"),
    "a spec that is a list": (header(specs=["[]"]), "with the text «op»"),
    "a spec that hides an escape": (header(specs=['{"op": "\\u001b[2J"}']), "with the text «op»"),
    "owners that are numbers": (header(owners=[1, 2]), "«owners» to be a list of texts"),
    "escapes in a name": (header(owners=["\x1b[2J", "b"]), "control characters"),
    "another version": (header(version=2), "expected version 1; found 2, of another oomproof"),
    "another format": (header(format="npz"), "expected the format"),
    "no object": (lambda c: c.update({HEADER: b"[]"}), "expected the format"),
    "no JSON": (lambda c: c.update({HEADER: b"\xff\xfe"}), "damaged"),
    "deep JSON": (lambda c: c.update({HEADER: b"[" * 10**6}), "damaged"),
    "NaN": (lambda c: c.update({HEADER: c[HEADER].replace(b'"example"', b"NaN")}), "control characters"),
    "a huge number": (lambda c: c.update({HEADER: b"9" * 10**6}), "damaged"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_contents(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    spoil, message = HOSTILE[case]
    contents = members(tmp_path)
    spoil(contents)
    (tmp_path / "bad.npz").write_bytes(packed(contents))
    with pytest.raises(DamagedFile, match=message) as caught:
        load_timeline("bad.npz")
    text = str(caught.value)
    assert text.startswith("bad.npz: ") and text.endswith("`oomproof check ... --save`")
    assert text.isprintable()
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_compressions_are_not_tried(method: int, tmp_path: Path) -> None:
    (tmp_path / "bad.npz").write_bytes(packed(members(tmp_path), method))
    with pytest.raises(DamagedFile, match="stored or deflated"):
        load_timeline(tmp_path / "bad.npz")


def peak_of(action: Callable[[], Any]) -> int:
    """Bytes Python and NumPy allocate at most while ``action`` runs."""
    import tracemalloc

    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def refused(path: Path) -> None:
    with pytest.raises(DamagedFile):
        load_timeline(path)


def test_a_zip_bomb_is_not_unpacked(tmp_path: Path) -> None:
    contents = members(tmp_path)
    contents["born.npy"] += bytes(100 << 20)
    path = tmp_path / "bomb.npz"
    path.write_bytes(packed(contents))
    assert path.stat().st_size < 1 << 20
    assert peak_of(lambda: refused(path)) < 4 << 20


def test_a_zip_bomb_that_lies_about_its_size(tmp_path: Path) -> None:
    contents = members(tmp_path)
    honest = len(contents["born.npy"])
    contents["born.npy"] += bytes(100 << 20)
    lying = len(contents["born.npy"]).to_bytes(4, "little")
    content = packed(contents)
    assert content.count(lying) >= 2
    path = tmp_path / "bomb.npz"
    path.write_bytes(content.replace(lying, honest.to_bytes(4, "little")))
    assert peak_of(lambda: refused(path)) < 4 << 20


def test_an_empty_and_a_foreign_file(tmp_path: Path) -> None:
    for content in (b"", b"PK", b"hello", pickle.dumps({"a": 1}), bytes(10_000)):
        (tmp_path / "bad.npz").write_bytes(content)
        with pytest.raises(DamagedFile, match="expected a saved timeline"):
            load_timeline(tmp_path / "bad.npz")


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED])
def test_flipped_and_cut_files(method: int, tmp_path: Path) -> None:
    good = packed(members(tmp_path), method)
    path = tmp_path / "bad.npz"
    chance = random.Random(7)
    survivors = 0
    for number in range(2000):
        content = bytearray(good)
        if number % 4 == 0:
            content = content[: chance.randrange(len(content))]
        else:
            for _ in range(chance.choice((1, 1, 2, 8))):
                content[chance.randrange(len(content))] = chance.randrange(256)
        path.write_bytes(content)
        try:
            timeline = load_timeline(path)
        except DamagedFile as error:
            assert str(error).isprintable()
        else:
            survivors += 1
            exercise(timeline)
    # Fields that zip readers ignore (times, attributes) may change; the rest may not.
    assert survivors < 800


def test_flipped_contents_behind_right_checksums(tmp_path: Path) -> None:
    good = members(tmp_path)
    path = tmp_path / "bad.npz"
    chance = random.Random(8)
    refusals = 0
    for _ in range(1200):
        contents = dict(good)
        name = chance.choice(sorted(contents))
        content = bytearray(contents[name])
        for _ in range(chance.choice((1, 2))):
            content[chance.randrange(len(content))] = chance.randrange(256)
        contents[name] = bytes(content)
        path.write_bytes(packed(contents, zipfile.ZIP_STORED))
        try:
            exercise(load_timeline(path))
        except DamagedFile:
            refusals += 1
    assert refusals > 500


def test_two_writers_leave_one_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "step.npz"
    threads = [threading.Thread(target=lambda: [save(example(), path) for _ in range(20)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert_same(example(), load_timeline(path))
    assert [p.name for p in tmp_path.iterdir()] == ["step.npz"]


def test_more_rows_than_can_be_replayed_in_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "long.timeline"
    save(example(), file)
    monkeypatch.setattr(timeline_file, "MAX_ROWS", 1)
    with pytest.raises(InputError, match="too many to be read again"):
        save(example(), file)
    monkeypatch.setattr(timeline_file, "MAX_COLUMN", 130)
    with pytest.raises(DamagedFile, match=r"born\.npy: expected at most 130 bytes, 1 rows; it declares"):
        load_timeline(file)
