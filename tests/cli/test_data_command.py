"""``oomproof data``"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oomproof import cli

Run = Callable[..., tuple[int, str, str]]


def write(path: Path, objects: list[int], **more: Any) -> str:
    """A COCO file whose images have so many objects, each larger than the one before."""
    images = [
        {"id": number, "file_name": f"{number}.jpg", "height": 480 + number, "width": 640}
        for number in range(len(objects))
    ]
    boxes = [number for number, count in enumerate(objects) for _ in range(count)]
    annotations = [
        {"id": number, "image_id": image, "bbox": [0, 0, 10, 20], "segmentation": [[1, 2, 3, 4, 5, 6]]}
        for number, image in enumerate(boxes)
    ]
    path.write_text(json.dumps({"images": images, "annotations": annotations, **more}))
    return str(path)


def test_says_what_is_in_it(run: Run, tmp_path: Path) -> None:
    code, out, err = run("data", write(tmp_path / "a.json", [0, 2, 2, 93, 1]))
    assert code == 0
    assert "5 images, 98 objects, 98 with masks" in out
    assert "480x640 to 484x640, median 482x640" in out
    assert "median 2, 95 % of images have 93 or fewer, most 93; 1 image without any" in out
    worst = out[out.index("Most objects") :].splitlines()
    assert worst[2].split() == ["3.jpg", "93", "483x640", "279"]
    assert "65-128" in out and "█" in out
    assert "Broken entries" not in out
    assert err.startswith("reading a.json")


def test_json_schema(run: Run, tmp_path: Path) -> None:
    path = write(tmp_path / "a.json", [0, 2, 5], extra={"licenses": [1]})
    code, out, err = run("data", path, "--json", "--worst", "1")
    found = json.loads(out)
    assert (code, err) == (0, "")
    assert list(found) == [
        "path", "format", "images", "objects", "empty_images", "turned_images", "sizes", "histogram", "worst",
        "problems", "notes",
    ]  # fmt: skip
    assert (found["format"], found["images"], found["empty_images"]) == ("COCO", 3, 1)
    assert found["objects"] == {
        "count": 7, "median": 2, "most_of_95_percent": 5, "most": 5, "crowds": 0, "masks": 7,
    }  # fmt: skip
    assert found["worst"]["objects"] == [
        {"name": "2.jpg", "size": [482, 640], "objects": 5, "vertices": 15, "mask_bytes": 0}
    ]
    assert sum(row["images"] for row in found["histogram"]) == 3
    assert found["problems"] == []


def test_broken_entries_are_named_and_are_no_failure(run: Run, tmp_path: Path) -> None:
    path = Path(write(tmp_path / "a.json", [1, 1]))
    path.write_text(path.read_text().replace("[0, 0, 10, 20]", "[0, 0, 0, 20]", 1))
    code, out, _ = run("data", str(path), "-q")
    assert code == 0
    assert "1  box without area  0.jpg" in out


@pytest.mark.parametrize("text", ["", "{", "[]", "hello", '{"images":[{"id":1}]}', '{"images":[]}'])
def test_what_cannot_be_read_is_one_line(run: Run, tmp_path: Path, text: str) -> None:
    (tmp_path / "a.json").write_text(text)
    code, out, err = run("data", str(tmp_path / "a.json"), "-q")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert err.startswith("oomproof: ")


def test_options_are_checked(run: Run, tmp_path: Path) -> None:
    path = write(tmp_path / "a.json", [1])
    for more in (["--worst", "-1"], ["--worst", "x"], ["--images", "nowhere"], ["--split", "train"]):
        code, _, err = run("data", path, "-q", *more)
        assert (code, err.count("\n")) == (1, 1), more


def test_help_and_others_do_not_load_ijson() -> None:
    for arguments in (["--help"], ["data", "--help"], ["gpus"]):
        code = (
            f"import sys; from oomproof.cli import main; main({arguments!r}); "
            "print([name for name in ('ijson', 'yaml', 'numpy') if name in sys.modules], file=sys.stderr)"
        )
        ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert ran.stderr == "[]\n", arguments


def test_interrupt_is_one_line(tmp_path: Path) -> None:
    with Path(write(tmp_path / "a.json", [1])).open("r+") as file:
        text = file.read()[:-1]
        file.seek(0)
        file.write(text + ', "x": [' + '{"a":[1, 2]},' * 2_000_000)
    environment = {**os.environ, "PYTHONPATH": str(Path(cli.__file__).parents[2])}
    process = subprocess.Popen(
        [sys.executable, "-m", "oomproof", "data", str(tmp_path / "a.json")],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None and process.stderr.readline().startswith("reading")
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "oomproof: interrupted\n")
