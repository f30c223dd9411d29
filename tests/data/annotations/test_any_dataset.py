"""Whatever is at the path: a dataset or one line, in bounded time and memory, and nothing is written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from dataset_files import Box, Picture, coco, example, framed, png, write_coco, write_records, write_voc, write_yolo
from hypothesis import given, settings
from hypothesis import strategies as st

from oomproof import Dataset, InputError, read_dataset
from oomproof.data.annotations import coco_stream, problems
from oomproof.data.annotations.profile import profile
from oomproof.report.data import document

ONE = Picture("one.png", 64, 48, (Box(0, 0, 10, 10, 5), Box(5, 5, 20, 20)))
MIB = 1 << 20


def read_or_refuse(path: Path) -> Dataset | None:
    """What a caller may rely on: figures that add up, or an error of one line."""
    started = time.process_time()
    try:
        dataset = read_dataset(path)
    except InputError as error:
        assert str(error) and "\n" not in str(error)
        return None
    finally:
        assert time.process_time() - started < 10
    assert len(dataset) == len(dataset.widths) == len(dataset.heights) == len(dataset.first) - 1 > 0
    assert (dataset.widths > 0).all() and (dataset.heights > 0).all() and (dataset.box_widths > 0).all()
    assert dataset.first[-1] == len(dataset.box_widths) == len(dataset.vertices) == len(dataset.crowd)
    json.dumps(document(dataset, profile(dataset)), allow_nan=False)
    return dataset


WHOLE = {
    "a.json": json.dumps(coco([ONE, ONE])).encode(),
    "a.tfrecord": framed(example(ONE)) * 2,
    "a.xml": b"<annotation><filename>a.png</filename><size><width>9</width><height>9</height></size></annotation>",
    "a.txt": b"0 0.5 0.5 0.2 0.2\n0 0.1 0.1 0.2 0.2 0.3 0.3\n",
    "data.yaml": b"path: .\ntrain: .\nval: .\nnames: {0: a}\n",
    "a.png": png(64, 48),
}


@st.composite
def damaged(draw: st.DrawFn, whole: bytes) -> bytes:
    """Bytes of a good file, some changed, some gone, some put in between."""
    data = bytearray(whole)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        upto = min(len(data), at + draw(st.integers(0, 12)))
        data[at:upto] = draw(
            st.one_of(st.binary(max_size=12), st.sampled_from([b"", b'"', b"[", b"{", b"]", b"-9e999"]))
        )
    return bytes(data)


@pytest.mark.parametrize("name", WHOLE)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_damaged_files(name: str, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("any")
    content = data.draw(st.one_of(damaged(WHOLE[name]), st.binary(max_size=200)))
    (folder / "a.png").write_bytes(WHOLE["a.png"])
    (folder / name).write_bytes(content)
    read_or_refuse(folder)
    read_or_refuse(folder / name)


@pytest.mark.parametrize("cut", range(0, len(WHOLE["a.json"]), 7))
def test_json_cut_anywhere(tmp_path: Path, cut: int) -> None:
    (tmp_path / "a.json").write_bytes(WHOLE["a.json"][:cut])
    read_or_refuse(tmp_path / "a.json")


@pytest.mark.parametrize(
    "text",
    [
        '{"images":' + "[" * 1_000_000,
        '{"a":' * 200_000,
        '{"images":[{"id":1,"width":5,"height":5,"x":' + "[" * 1_000_000,
        '{"images":[{"id":' + "9" * 1_000_000 + "}]}",
        '{"images":[{"id":1e' + "9" * 1_000_000 + "}]}",
        '{"images":[{"id":1,"width":1e999,"height":-0}]}',
        '{"images":{"a":{"id":1,"width":3,"height":4}}}',
        '{"images":3,"annotations":null}',
        '{"images":[[[1]],3,null,{"id":[1],"width":{}}]}',
        '{"segmentation":[' + "1," * 5_000_000,
        '{"images":[{"id":"\\ud800","file_name":"\\ud800\\u0000","width":3,"height":4}]}',
        "\ufeff{}",
        "[[[[",
        "{" + '"counts":' * 300_000,
    ],
    ids=lambda text: text[:40],
)
def test_hostile_json(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.json").write_text(text)
    read_or_refuse(tmp_path / "a.json")


@pytest.mark.thorough
def test_a_text_without_end_is_not_held_in_memory(tmp_path: Path) -> None:
    with (tmp_path / "a.json").open("wb") as file:
        file.write(b'{"images":[{"file_name":"')
        for _ in range(60):
            file.write(b'\\"' * (MIB // 2))
    assert peak_of(tmp_path / "a.json") < peak_of(write_coco([ONE], tmp_path / "b.json")) + 60 * MIB
    with pytest.raises(InputError, match="a single value of more than 4 MiB"):
        read_dataset(tmp_path / "a.json")


def test_many_objects_take_little_memory(tmp_path: Path) -> None:
    """30 MB of annotations; their Python objects would take more than ten times that."""
    whole = coco([Picture(f"{n}.png", 640, 480, (Box(1, 1, 50, 60, 100),) * 10) for n in range(5)])
    line = ",".join(json.dumps(entry | {"id": None}) for entry in whole["annotations"])
    with (tmp_path / "a.json").open("w") as file:
        file.write('{"annotations":[')
        file.write(",".join([line] * 500))
        file.write('],"images":' + json.dumps(whole["images"]) + "}")
    assert (tmp_path / "a.json").stat().st_size > 29e6
    assert read_dataset(tmp_path / "a.json").objects.tolist() == [5000] * 5
    assert peak_of(tmp_path / "a.json") < peak_of(write_coco([ONE], tmp_path / "b.json")) + 40 * MIB


def peak_of(path: Path) -> int:
    code = (
        "import resource, sys, oomproof\n"
        "try:\n    oomproof.read_dataset(sys.argv[1])\nexcept oomproof.InputError: pass\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    ran = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    return int(ran.stdout) << 10


def test_longer_lists_than_are_looked_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coco_stream, "BLOCK", 64)
    monkeypatch.setattr(coco_stream, "LONGEST_LIST", 256)
    picture = Picture("a.png", 64, 48, tuple(Box(0, 0, 10, 10, vertices) for vertices in (3, 20, 60, 61, 500)))
    dataset = read_dataset(write_coco([picture], tmp_path / "a.json"))
    assert dataset.vertices.tolist() == [3, 20, 60, 61, 500]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes with names are of POSIX")
def test_pipes_devices_and_circles(tmp_path: Path) -> None:
    """None of them may be waited for or read to its end."""
    os.mkfifo(tmp_path / "pipe.json")
    for path in (tmp_path / "pipe.json", Path("/dev/zero"), Path("/dev/stdin")):
        assert read_or_refuse(path) is None
    folder = write_voc([ONE], tmp_path / "voc")
    os.mkfifo(folder / "Annotations" / "pipe.xml")
    (folder / "Annotations" / "zero.xml").symlink_to("/dev/zero")
    (folder / "Annotations" / "circle.xml").symlink_to(folder / "Annotations" / "circle.xml")
    (folder / "Annotations" / "up").symlink_to(folder)
    assert read_dataset(folder).names == ("one.png",)
    other = write_yolo([ONE], tmp_path / "yolo")
    (other / "labels" / "train" / "one.txt").unlink()
    os.mkfifo(other / "labels" / "train" / "one.txt")
    os.mkfifo(other / "images" / "train" / "pipe.png")
    assert [problem.kind for problem in read_dataset(other).problems] == [problems.UNREADABLE]
    content = coco([ONE])
    del content["images"][0]["width"]
    (tmp_path / "one.png").symlink_to("/dev/zero")
    (tmp_path / "a.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match="pipe, socket or device"):
        read_dataset(tmp_path / "a.json", tmp_path)


@pytest.mark.parametrize("name", ["../one.png", "\0", "a" * 300, "", ".", "a\nb\x1b[2J"])
def test_names_that_are_no_files(tmp_path: Path, name: str) -> None:
    content = coco([ONE, ONE])
    del content["images"][0]["width"]
    content["images"][0]["file_name"] = name
    (tmp_path / "images").mkdir()
    (tmp_path / "a.json").write_text(json.dumps(content))
    dataset = read_dataset(tmp_path / "a.json", tmp_path / "images")
    assert len(dataset) == 1
    assert all(example.isprintable() for problem in dataset.problems for example in problem.examples)


@pytest.mark.parametrize("path", ["", "no-such-file", "a\0b", "a" * 5000])
def test_paths_that_are_none(path: str) -> None:
    with pytest.raises(InputError):
        read_dataset(Path(path) if path else "nothing here")


def test_nothing_is_written(tmp_path: Path) -> None:
    write_coco([ONE], tmp_path / "a.json")
    write_records([ONE], tmp_path / "a.record")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    read_dataset(tmp_path / "a.json")
    read_dataset(tmp_path / "a.record")
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_what_it_is_not(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    for path in (tmp_path, tmp_path / "notes.txt"):
        with pytest.raises(InputError, match="not a dataset that is known: expected a COCO JSON file"):
            read_dataset(path)
    with pytest.raises(InputError, match="no folder of images"):
        read_dataset(write_coco([ONE], tmp_path / "a.json"), tmp_path / "none")
