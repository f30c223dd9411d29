"""Files that no program wrote: whatever they hold, the answer is a report or a line."""

from __future__ import annotations

import io
import json
import pickle
import random
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from oomproof.cli import main
from oomproof.memory.files.timeline_file import HEADER

QUICK, LONG = 40, 400
CONFIG = b"""_BASE_: "COCO-Detection/faster_rcnn_R_50_FPN_3x.yaml"
MODEL:
  WEIGHTS: "model.pkl"
  RESNETS: {DEPTH: 50}
  ANCHOR_GENERATOR: {SIZES: [[32], [64], [128], [256], [512]]}
  PIXEL_MEAN: [103.5, 116.2, 123.6]
SOLVER:
  IMS_PER_BATCH: 4
  STEPS: (1000, 2000)
  BASE_LR: 0.02
INPUT:
  MIN_SIZE_TRAIN: !!python/tuple [640, 800]
  MASK_FORMAT: polygon
DATASETS: {TRAIN: ("coco_2017_train",)}
"""
COCO = {
    "images": [{"id": 1, "width": 64, "height": 48, "file_name": "1.png"}],
    "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [1, 2, 3, 4], "area": 12, "iscrowd": 0}],
    "categories": [{"id": 1, "name": "cat"}],
}
SETTINGS = {"oomproof": 1, "job": "x", "device": "8GiB", "settings": {"batch": 2, "workers": 0}, "changes": []}
SNAPSHOT = {
    "device_traces": [[{"action": "alloc", "addr": 8, "size": 99, "frames": [{"filename": "a.py", "line": 1}]}]],
    "segments": [{"device": 0, "address": 0, "total_size": 9, "blocks": [{"size": 9, "state": "active_allocated"}]}],
}
IN_YAML = (
    b"2024-01-01", b"2024-01-01T00:00:00Z", b"!!set {a, b}", b"{? [a, b] : c}", b"{1: {2: 3}}", b"!!binary aGVsbG8=",
    b"9" * 30, b"-1", b".nan", b".inf", b"1e400", b"0x10", b"0o17", b"1_000", b"12:30:45", b"&a [*a]", b"*nothing",
    b"<<: 3", b"!!python/object/apply:os.system [ls]", b"!!omap [a: 1]", b"[" * 200, b"'", b'"', b"\t", b"%YAML 9.9",
    b"---\n---", b"null", b"~", b"yes", b"!!float x", b"!!int x", b"{}", b"[]", b"? ", b"\xff\xfe", b"\x00", b"|\n  a",
)  # fmt: skip
IN_JSON = (
    b"null", b"true", b"-1", b"1e400", b"NaN", b"Infinity", b"9" * 30, b"9" * 5000, b'""', b'"\\ud800"', b"{}", b"[]",
    b"[" * 2000, b'{"a":' * 2000, b"\x00", b"\xff", b'"2024-01-01"', b"0.5", b"1.0", b'{"a": 1, "a": 2}', b"[[[]]]",
)  # fmt: skip


def damage(draw: random.Random, content: bytes, odd: Sequence[bytes]) -> bytes:
    for _ in range(draw.randrange(1, 4)):
        at, length = draw.randrange(len(content) + 1), draw.choice((0, 1, 1, 4, 20, 200))
        new = draw.choice((draw.choice(odd), draw.randbytes(draw.randrange(4)), content[at : at + 30]))
        content = content[:at] + new + content[at + length :]
    return content


def put_anywhere(draw: random.Random, value: Any, odd: Sequence[Any]) -> Any:
    """The value with one of its parts replaced."""
    if isinstance(value, dict) and value and draw.random() < 0.85:
        key = draw.choice(list(value))
        return {**value, key: put_anywhere(draw, value[key], odd)}
    if isinstance(value, list) and value and draw.random() < 0.85:
        at = draw.randrange(len(value))
        return [*value[:at], put_anywhere(draw, value[at], odd), *value[at + 1 :]]
    return draw.choice(odd)


ODD_VALUES: Sequence[Any] = (
    None, True, -1, 0, 1 << 70, -(1 << 70), 0.5, float("nan"), float("inf"), "", "x" * 500, "\x1b[31m", [], {}, [[]],
    {"a": 1}, [None], (1, 2), "12", 10**30,
)  # fmt: skip


def yaml(draw: random.Random, _: bytes) -> bytes:
    lines = CONFIG.split(b"\n")
    if draw.random() < 0.5:  # an odd value in the place of a value
        at = draw.randrange(len(lines))
        lines[at] = lines[at].split(b":")[0] + b": " + draw.choice(IN_YAML)
        return b"\n".join(lines)
    return damage(draw, CONFIG, IN_YAML)


def coco(draw: random.Random, _: bytes) -> bytes:
    return _json(draw, COCO)


def settings(draw: random.Random, _: bytes) -> bytes:
    return _json(draw, SETTINGS)


def _json(draw: random.Random, value: Any) -> bytes:
    if draw.random() < 0.5:
        return json.dumps(put_anywhere(draw, value, ODD_VALUES)).encode()
    return damage(draw, json.dumps(value).encode(), IN_JSON)


def snapshot(draw: random.Random, _: bytes) -> bytes:
    if draw.random() < 0.7:
        return pickle.dumps(put_anywhere(draw, SNAPSHOT, ODD_VALUES), draw.choice((2, 4, 5)))
    return b"\x80" + damage(draw, pickle.dumps(SNAPSHOT, 4)[1:], (b"]", b"}", b"h\x00", b"R", b"c", b"\x94", b"K\x01"))


def timeline(draw: random.Random, step: bytes) -> bytes:
    if draw.random() < 0.2:
        return damage(draw, step, (b"PK\x03\x04", b"\0" * 9))
    written = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(step)) as before, zipfile.ZipFile(written, "w") as after:
        for name in before.namelist():
            content = before.read(name)
            if name == HEADER and draw.random() < 0.7:
                content = json.dumps(put_anywhere(draw, json.loads(content), ODD_VALUES)).encode()
            elif draw.random() < 0.1:
                content = damage(draw, content, (b"\xff" * 8, b"\0" * 8))
            after.writestr(name, content)
    return written.getvalue()


KINDS: dict[str, tuple[Callable[[random.Random, bytes], bytes], str, Sequence[str]]] = {
    "YAML": (yaml, "config.yaml", ("check", "{file}", "--settings")),
    "COCO": (coco, "annotations.json", ("data", "{file}", "-q")),
    "settings": (settings, "x.oomproof.json", ("check", "{step}", "--on", "8GiB", "-q", "--from", "{file}")),
    "snapshot": (snapshot, "x.pickle", ("explain", "{file}")),
    "snapshot as a job": (snapshot, "x.pickle", ("check", "{file}", "--on", "8GiB", "-q")),
    "timeline": (timeline, "x.timeline", ("check", "{file}", "--on", "8GiB", "-q")),
}


@pytest.mark.parametrize("count", [QUICK, pytest.param(LONG, marks=[pytest.mark.thorough, pytest.mark.slow])])
@pytest.mark.parametrize("kind", KINDS)
def test_the_answer_is_a_report_or_a_line(
    kind: str, count: int, step: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make, name, command = KINDS[kind]
    good, file = Path(step).read_bytes(), tmp_path / name
    arguments = [each.format(file=file, step=step) for each in command]
    for seed in range(count):
        content = make(random.Random(f"{kind} {seed}"), good)
        file.write_bytes(content)
        code = main(arguments)
        out, err = capsys.readouterr()
        told = f"seed {seed}: {content[:300]!r}\n{err}"
        assert "internal error" not in err, told
        assert code in (0, 1, 2), told
        assert out if code != 1 else err.startswith("oomproof: ") and err.count("\n") == 1, told
        assert "\x1b" not in out + err, told
