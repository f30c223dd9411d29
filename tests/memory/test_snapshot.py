"""PyTorch memory snapshots: made by hand here, for making a real one takes a GPU."""

from __future__ import annotations

import os
import pickle
import random
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oomproof.errors import DamagedFile, InputError
from oomproof.memory.allocators.cuda import replay
from oomproof.memory.files.plain_pickle import NotPlain, read_plain
from oomproof.memory.files.snapshot import load_snapshot
from oomproof.memory.timeline import Timeline

MIB = 1 << 20
BASE = 0x7F0000000000
TORCH = "/env/lib/python3.11/site-packages/torch/nn/modules/linear.py"
USER = [
    {"filename": "??", "line": 0, "name": "at::empty"},
    {"filename": TORCH, "line": 125, "name": "forward"},
    {"filename": "/home/me/train.py", "line": 17, "name": "step"},
    {"filename": "/home/me/main.py", "line": 3, "name": "<module>"},
]


def event(action: str, address: int = 0, size: int = 0, frames: Any = None) -> dict[str, Any]:
    more = {"stream": 0, "time_us": 1_700_000_000_000_000, "compile_context": "N/A", "pool_id": (0, 0)}
    return {
        "action": action,
        "addr": BASE + address,
        "size": size,
        "frames": USER if frames is None else frames,
        **more,
    }


def freed(address: int, size: int) -> list[dict[str, Any]]:
    return [event("free_requested", address, size), event("free_completed", address, size)]


def segment(address: int, *blocks: tuple[int, str], device: int = 0) -> dict[str, Any]:
    listed, at = [], BASE + address
    for size, state in blocks:
        listed.append({"address": at, "size": size, "requested_size": size, "state": state, "frames": USER})
        at += size
    return {
        "device": device,
        "address": BASE + address,
        "total_size": sum(size for size, _ in blocks),
        "stream": 0,
        "segment_type": "large",
        "segment_pool_id": (0, 0),
        "blocks": listed,
    }


def written(tmp_path: Path, segments: list[Any], *traces: list[Any]) -> Path:
    path = tmp_path / "snapshot.pickle"
    settings = {"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1, "garbage_collection_threshold": 0.5}
    with path.open("wb") as file:
        pickle.dump({"segments": segments, "device_traces": list(traces), "allocator_settings": settings}, file)
    return path


def loaded(tmp_path: Path, segments: list[Any], *traces: list[Any]) -> Timeline:
    return load_snapshot(written(tmp_path, segments, *traces))


def test_blocks_and_their_lines(tmp_path: Path) -> None:
    trace = [
        event("segment_alloc", 0, 20 * MIB),
        event("alloc", 0, 5 * MIB),
        event("alloc", 5 * MIB, 3 * MIB, [{"filename": "/lib/data.py", "line": 9, "name": "collate"}]),
        *freed(5 * MIB, 3 * MIB),
        event("snapshot"),
    ]
    timeline = loaded(tmp_path, [segment(0, (5 * MIB, "active_allocated"), (15 * MIB, "inactive"))], trace)
    assert timeline.bytes.tolist() == [5 * MIB, 3 * MIB]
    assert (timeline.born.tolist(), timeline.died.tolist(), timeline.ticks) == ([0, 1], [3, 2], 3)
    assert [timeline.owners[i] for i in timeline.owner] == ["train.py:17 step", "data.py:9 collate"]
    assert [timeline.ops[i] for i in timeline.op] == ["step", "collate"]
    assert timeline.by_kind(1)["temporary"] == 3 * MIB
    assert timeline.by_kind(1)["activation"] == 5 * MIB, "alive at the end"
    assert timeline.peak().bytes == 8 * MIB
    assert (timeline.about.job, timeline.about.recorded) == ("snapshot.pickle", True)
    assert timeline.about.reserved == 20 * MIB == replay(timeline).reserved
    assert "CUDA context" in timeline.about.not_counted[0]


def test_blocks_from_before_the_recording(tmp_path: Path) -> None:
    # At 0: never freed, seen in the segments alone. At 4 MiB: freed while recording. At 8 MiB: made while recording.
    trace = [event("alloc", 8 * MIB, MIB), *freed(4 * MIB, 4 * MIB)]
    kept = segment(0, (4 * MIB, "active_allocated"), (4 * MIB, "inactive"), (MIB, "active_awaiting_free"))
    timeline = loaded(tmp_path, [kept], trace)
    assert sorted(timeline.bytes.tolist()) == [MIB, 4 * MIB, 4 * MIB]
    assert timeline.peak().bytes == 9 * MIB
    assert timeline.by_owner(timeline.peak().tick) == {
        "train.py:17 step": 5 * MIB,
        "(before the recording)": 4 * MIB,
    }
    assert int(timeline.curve()[-1]) == 5 * MIB


def test_an_address_used_again_is_another_block(tmp_path: Path) -> None:
    trace = [event("alloc", 0, MIB), *freed(0, MIB), event("alloc", 0, 2 * MIB), *freed(0, 2 * MIB)]
    timeline = loaded(tmp_path, [], trace)
    assert (timeline.bytes.tolist(), timeline.peak().bytes) == ([MIB, 2 * MIB], 2 * MIB)


def test_the_peak_of_reserved_memory(tmp_path: Path) -> None:
    trace = [
        event("segment_alloc", 0, 30 * MIB),
        event("alloc", 0, MIB),
        event("segment_map", 30 * MIB, 20 * MIB),
        event("segment_unmap", 30 * MIB, 20 * MIB),
        event("segment_free", 0, 30 * MIB),
        event("segment_alloc", 90 * MIB, 20 * MIB),
    ]
    before = segment(200 * MIB, (10 * MIB, "inactive"))
    timeline = loaded(tmp_path, [before, segment(90 * MIB, (20 * MIB, "inactive"))], trace)
    assert timeline.about.reserved == 60 * MIB, "10 from before, 30 and 20"


def test_the_busiest_gpu_and_a_word_about_the_others(tmp_path: Path) -> None:
    second = [event("alloc", 0, MIB), event("alloc", MIB, MIB)]
    other = segment(0, (64 * MIB, "active_allocated"), device=0)
    timeline = loaded(tmp_path, [other], [event("alloc", 7 * MIB, 5)], second, [])
    assert (timeline.about.device, timeline.bytes.tolist()) == (1, [MIB, MIB])
    assert timeline.about.not_counted[1] == "1 more GPU(s) of this snapshot"


def test_lines_when_there_is_no_user_code(tmp_path: Path) -> None:
    inside = [{"filename": TORCH, "line": 125, "name": "forward"}]
    trace = [event("alloc", 0, 1, inside), event("alloc", 1, 1, []), event("alloc", 2, 1, [{"filename": "\x1b.py"}])]
    timeline = loaded(tmp_path, [], trace)
    assert [timeline.owners[i] for i in timeline.owner] == [
        "linear.py:125 forward",
        "(no Python frame)",
        "?.py:None None",
    ]


@pytest.mark.parametrize("traces", [(), ([],), ([event("snapshot")],), ([event("segment_alloc", 0, 5)], [])])
def test_nothing_was_recorded(tmp_path: Path, traces: tuple[list[Any], ...]) -> None:
    with pytest.raises(
        DamagedFile, match=r"recording was not on; call torch\.cuda\.memory\._record_memory_history\(\)"
    ):
        loaded(tmp_path, [segment(0, (MIB, "active_allocated"))], *traces)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "which is a dict; found list"),
        ({}, "«device_traces» to be a list"),
        ({"device_traces": [5], "segments": []}, "«device_traces» to be a list"),
        ({"device_traces": [[5]], "segments": []}, "dict with an action"),
        ({"device_traces": [[event("alloc", 0, -1)]], "segments": []}, "address and size in bytes"),
        ({"device_traces": [[{**event("alloc"), "size": 1.5}]], "segments": []}, "address and size in bytes"),
        ({"device_traces": [[event("alloc", 0, 1 << 59)] * 3], "segments": []}, "TiB of allocations"),
        ({"device_traces": [[event("alloc", 0, 1)]], "segments": [{"blocks": [{}]}]}, "to have a size"),
        ({"device_traces": [[event("alloc", 0, 1)]], "segments": [{"blocks": None}]}, "«blocks» to be a list"),
        ({"device_traces": [[event("alloc", 0, 1, "text")]], "segments": []}, "«frames» to be a list"),
    ],
)
def test_plain_data_that_is_no_snapshot(tmp_path: Path, value: Any, message: str) -> None:
    (tmp_path / "bad.pickle").write_bytes(pickle.dumps(value))
    with pytest.raises(DamagedFile, match=message) as caught:
        load_snapshot(tmp_path / "bad.pickle")
    assert str(caught.value).isprintable()


class Executes:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("executed",)


START = b"\x80\x04"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"hello",
        START,
        START + b"N",
        pickle.dumps(Executes()),
        pickle.dumps({"device_traces": [[Executes()]], "segments": []}),
        pickle.dumps(Executes(), protocol=0),
        b"cos\nmkdir\n(S'executed'\ntR.",
        START + b"cos\nmkdir\n(\x8c\x08executedtR.",
        START + b"\x8c\x02os\x8c\x05mkdir\x93(\x8c\x08executed\x86R.",
        START + b"(ios\nmkdir\n.",
        START + b"\x82\x01.",  # EXT1
        START + b"Pexecuted\n.",  # PERSID
        START + b"N\x85b.",  # BUILD
        START + b"\x8b\xff\xff\xff\x7f" + b"1" * 64 + b".",  # LONG4 of 2 GiB
        START + b"\x8d" + (1 << 40).to_bytes(8, "little") + b"x.",  # BINUNICODE8 of 1 TiB
        START + b"\x96" + (1 << 40).to_bytes(8, "little") + b"x.",  # BYTEARRAY8 of 1 TiB
        START + b"X" + b"\xff\xff\xff\xff" + b"x.",  # BINUNICODE of 4 GiB
        START + b"Nr\xff\xff\xff\x7f.",  # LONG_BINPUT: a memo of 2 * 10^9 places
        START + b"\x95" + (1 << 62).to_bytes(8, "little") + b"N.",  # FRAME longer than the file
        START + b"I" + b"9" * 1_000_000 + b"\n.",  # INT in decimal
        START + b"j\xff\xff\xff\xff.",  # LONG_BINGET of nothing
        START + b"e.",
        START + b"u.",
        START + b"NNs.",
        START + b"}]Ns.",  # a list as a key
        START + b"\x8c\x02\xff\xfe.",  # no UTF-8
        START + b"]" * 100_000 + b".",  # many empty lists
        START + b"K\x01" + b"\x85" * 1_000_000 + b"}NN.",  # deep tuples
        START + b"}" + b"K\x01K\x01\x86" + b"K\x01\x86" * 300_000 + b"Ns.",  # a deep pair as a key
    ],
    ids=lambda content: repr(content[2:14]),
)
def test_hostile_pickles(tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad.pickle").write_bytes(content)
    with pytest.raises(DamagedFile) as caught:
        load_snapshot("bad.pickle")
    assert str(caught.value).isprintable()
    assert not Path("executed").exists()


def test_deep_nesting_is_harmless(tmp_path: Path) -> None:
    depth = 200_000
    # Lists in lists, each with something in it so that there are enough bytes for a list.
    content = START + b"](" + b"](NNNNNNNN" * depth + b"e" * depth + b"e."
    (tmp_path / "deep.pickle").write_bytes(content)
    with pytest.raises(DamagedFile, match="which is a dict; found list"):
        load_snapshot(tmp_path / "deep.pickle")
    value = read_plain(content)
    assert sys.getsizeof(value) > 0


def test_references_multiply_no_work(tmp_path: Path) -> None:
    frames = [{"filename": "/a/x.py", "line": 1, "name": "f"}] * 10_000
    trace = [event("alloc", n, 1, frames) for n in range(5000)]
    timeline = loaded(tmp_path, [], *([trace] * 1000))
    assert len(timeline) == 5000


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64) | st.floats(allow_nan=False) | st.text(max_size=300),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4) | st.integers(0, 9), inner, max_size=4)
    ),
    max_leaves=40,
)


@settings(max_examples=300, deadline=None)
@given(plain, st.sampled_from((4, 5)))
def test_plain_values_come_back(value: Any, protocol: int) -> None:
    assert read_plain(pickle.dumps(value, protocol)) == value


def test_a_long_run_of_pairs_comes_back() -> None:
    pairs = [(n % 7, n) for n in range(100_000)]
    assert read_plain(pickle.dumps(pairs)) == pairs


def test_a_frame_may_begin_within_a_pair() -> None:
    frame = b"\x95" + (4).to_bytes(8, "little")
    assert read_plain(START + b"K\x01" + frame + b"K\x02\x86.") == (1, 2)
    frame = b"\x95" + (2).to_bytes(8, "little")
    assert read_plain(START + b"K\x01K\x02" + frame + b"\x86.") == (1, 2)


def test_many_lists_of_nothing() -> None:
    with pytest.raises(NotPlain, match="expected lists, dicts and texts with contents; found 100000"):
        read_plain(START + b"]" * 100_000 + b".")


@pytest.mark.thorough
def test_flipped_and_cut_snapshots(tmp_path: Path) -> None:
    trace = [event("alloc", 0, 5 * MIB), event("alloc", 5 * MIB, MIB), *freed(0, 5 * MIB), event("oom", 0, MIB)]
    good = written(tmp_path, [segment(0, (5 * MIB, "inactive"), (MIB, "active_allocated"))], trace).read_bytes()
    chance = random.Random(9)
    refusals = 0
    for number in range(4000):
        content = bytearray(good)
        if number % 5 == 0:
            content = content[: chance.randrange(len(content))]
        for _ in range(chance.choice((1, 1, 2, 6)) if number % 5 else 0):
            content[chance.randrange(len(content))] = chance.randrange(256)
        (tmp_path / "bad.pickle").write_bytes(content)
        try:
            timeline = load_snapshot(tmp_path / "bad.pickle")
        except DamagedFile as error:
            assert str(error).isprintable()
            refusals += 1
        else:
            assert timeline.curve().min(initial=0) >= 0
            assert sum(timeline.by_kind(timeline.peak().tick).values()) == timeline.peak().bytes
            assert "".join(timeline.owners).isprintable()
    assert refusals > 2000


def test_random_bytes_behind_a_right_start() -> None:
    chance = random.Random(10)
    opcodes = b"N\x88K\x00M\x8a\x01G}]()aesu\x94h\x00j\x95\x86\x8c\x02ab.cRb"
    for _ in range(5000):
        body = bytes(chance.choice(opcodes) for _ in range(chance.randrange(40)))
        try:
            read_plain(START + body + b".")
        except NotPlain:
            continue


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no file"):
        load_snapshot(tmp_path / "none.pickle")
    with pytest.raises(InputError, match="is not a file"):
        load_snapshot(tmp_path)
    with (tmp_path / "large.pickle").open("wb") as file:
        file.truncate(600 << 20)
    with pytest.raises(DamagedFile, match="expected at most 512 MiB; found 600 MiB"):
        load_snapshot(tmp_path / "large.pickle")
