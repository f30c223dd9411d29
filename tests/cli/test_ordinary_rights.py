"""A user who is not root, whose home and working directory are read-only, on a terminal without a width; and two
processes at once."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from oomproof import cli
from thorough import THOROUGH

SETPRIV = shutil.which("setpriv")
ROOT_RIGHTS_GONE = [SETPRIV, "--bounding-set=-all", "--inh-caps=-all"] if SETPRIV and os.geteuid() == 0 else []
"""root without its capabilities is held to the modes of files, as everybody else is"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.name != "posix", reason="modes of files are those of POSIX"),
    pytest.mark.skipif(os.name == "posix" and os.geteuid() == 0 and not SETPRIV, reason="root, without setpriv"),
]

TRAIN = """
import torch
model = torch.nn.Linear(8, 8).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(3):
    model(torch.randn(4, 8).cuda()).sum().backward()
    optimizer.step()
torch.save(model.state_dict(), "weights.pt")
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "oom.log").write_text("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.18 GiB.\n")
    tmp_path.chmod(0o555)
    return tmp_path


def oomproof(place: Path, *words: str) -> subprocess.Popen[str]:
    environment = {
        **os.environ,
        "HOME": str(place),
        "XDG_CACHE_HOME": "",
        "COLUMNS": "0",
        "PYTHONPATH": str(Path(cli.__file__).parents[2]),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return subprocess.Popen(
        [*ROOT_RIGHTS_GONE, sys.executable, "-m", "oomproof", *words],
        cwd=place,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize(
    "words",
    [
        ["gpus"],
        ["explain", "oom.log"],
        pytest.param(["check", "torchvision:resnet18", "--on", "8GiB"], marks=THOROUGH),
        ["check", "--on", "8GiB", "--", sys.executable, "train.py"],
        pytest.param(
            ["check", "keras:MobileNetV2", "--image-size", "96x96", "--on", "8GiB", "--set", "jit_compile=true"],
            marks=THOROUGH,  # XLA's answers cannot be kept
        ),
    ],
    ids=" ".join,
)
def test_what_writes_nothing_works_in_read_only_folders(place: Path, words: list[str]) -> None:
    before = sorted(place.iterdir())
    process = oomproof(place, *words)
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    assert out
    assert "Traceback" not in err
    assert sorted(place.iterdir()) == before


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["check", "torchvision:resnet18", "--on", "8GiB", "--html", "page.html"], "--html cannot write page.html"),
        (["check", "torchvision:resnet18", "--on", "8GiB", "--save", "a.timeline"], "--save cannot write a.timeline"),
        (["fit", "torchvision:resnet18", "--on", "8GiB", "--write", "a.json"], "--write cannot write a.json"),
    ],
    ids=lambda words: words[-2] if isinstance(words, list) else "",
)
def test_what_cannot_be_written_is_told_before_any_work(place: Path, words: list[str], told: str) -> None:
    process = oomproof(place, *words)
    _, err = process.communicate(timeout=600)
    assert process.returncode == 1
    assert told in err and "read-only" in err
    assert "tracing" not in err


@pytest.mark.parametrize(
    "words",
    [
        ["check", "{}.py", "--on", "8GiB"],
        ["check", "{}.py:job", "--on", "8GiB"],
        ["check", "{}.config", "--on", "8GiB"],
        ["check", "{}.keras", "--on", "8GiB"],
        ["check", "{}.timeline", "--on", "8GiB"],
        ["check", "--on", "8GiB", "--", sys.executable, "{}.py"],
        ["data", "{}-*.record"],
        ["data", "{}"],
        ["explain", "{}.log"],
        ["explain", "oom.log", "--html", "{}.html"],
        ["run", "{}.config", "--model-dir", "out"],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("at", ["closed/file", "long" * 80])
def test_what_cannot_be_looked_at_is_one_line(place: Path, at: str, words: list[str]) -> None:
    """In a folder that one may not enter, such as another user's, or with a name that no file system has."""
    place.chmod(0o755)
    (place / "closed").mkdir(mode=0o000)
    process = oomproof(place, *(each.format(at) for each in words))
    out, err = process.communicate(timeout=60)
    told = [line for line in err.splitlines() if line.startswith("oomproof: ")]
    assert process.returncode == 1 and not out and len(told) == 1, err
    assert "internal error" not in err and "Traceback" not in err, err
    assert any(each in err for each in ("Permission denied", "File name too long", "no TFRecord file")), err


@pytest.mark.thorough
def test_two_plans_for_one_file_at_once(tmp_path: Path) -> None:
    """Each is whole, one of them is in the file, and what the user had is kept."""
    config = tmp_path / "config.yaml"
    own = (
        "_BASE_: COCO-Detection/retinanet_R_50_FPN_1x.yaml\nSOLVER:\n  IMS_PER_BATCH: 16  # mine\n"
        "INPUT:\n  MIN_SIZE_TRAIN: (256,)\n  MAX_SIZE_TRAIN: 320\n"
    )
    config.write_text(own)
    runs = [oomproof(tmp_path, "fit", "config.yaml", "--on", size, "--write") for size in ("2GiB", "3GiB")]
    told = [run.communicate(timeout=600) for run in runs]
    codes = [run.returncode for run in runs]
    assert 0 in codes, told
    for code, (_, err) in zip(codes, told, strict=True):
        assert code == 0 or "changed since" in err, err
    text = config.read_text()
    assert text.startswith("_BASE_") and "# mine" in text and text != own
    assert (tmp_path / "config.yaml.orig").read_text() == own
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.yaml", "config.yaml.orig"]
