"""What the documentation shows works: examples trace, commands run and end as the text says, code is the examples'."""

from __future__ import annotations

import ast
import importlib
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import oomproof
from oomproof.changes.settings_file import write_settings
from oomproof.cli import main
from oomproof.frameworks.object_detection import INSTALL, missing_packages
from thorough import THOROUGH

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = sorted(path.name for path in (ROOT / "examples").glob("*.py"))
LOGS = sorted(path.name for path in (ROOT / "examples").glob("*.log"))

PIPELINE = """
model { ssd { num_classes: 3 image_resizer { fixed_shape_resizer { height: 300 width: 300 } } } }
train_config { batch_size: 24 }
train_input_reader { tf_record_input_reader { input_path: "train.record" } }
"""
EDITING = """
from object_detection.utils import config_util

configs = config_util.get_configs_from_pipeline_file("pipeline.config")
configs["train_config"].batch_size = 4
"""
"""what docs/tf_object_detection.md reads"""
NEEDS_THE_API = ("tf_object_detection.md", "tf_mask_rcnn.md")
NOT_HERE = ("oomproof data bccd",)
"""their data are not in this repository: what the page shows was printed once"""
RENEW = "RENEW_EXAMPLES=1 pytest tests/test_examples.py -k shown_commands writes it anew"
WITH_YOURS = ("detectron2_training.md", "keras.md", "tf_data.md")
"""pages whose Python goes on from a trainer, a model or a dataset of the reader's"""

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^(?:\$ )?(oomproof .*?)(?: \|.*)?(?:\s+# (?:exit code (\d+))?.*)?$")


class Command(NamedTuple):
    page: str
    text: str
    code: int
    """what the page claims: ``# exit code 2`` behind the command, or 0"""
    printed: str
    """what the page shows under the command, in a console block"""


def blocks(page: Path, language: str) -> list[str]:
    return [text for name, text in _BLOCK.findall(page.read_text()) if name == language]


def commands(page: Path) -> Iterator[Command]:
    for language in ("sh", "console", "python"):  # in Python: a docstring
        for block in blocks(page, language):
            lines = block.splitlines()
            for place, line in enumerate(lines):
                if found := _COMMAND.match(line):
                    printed = "\n".join(lines[place + 1 :]) if language == "console" else ""
                    yield Command(page.name, found[1], int(found[2] or 0), printed)


SHOWN = [command for page in PAGES for command in commands(page)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a reader stands: beside examples/, and with copies at hand, as in `oomproof check train_job.py:job`."""
    folder = tmp_path_factory.mktemp("reader")
    (folder / "examples").mkdir()
    for name in (
        "examples/classifier.oomproof.json",
        "fitted.json",
    ):  # as a plan leaves it, so that any test runs alone
        write_settings(folder / name, "classifier.py:job", "4GiB", {"batch": 2, "accumulate": 4})
    for name in (*EXAMPLES, *LOGS):
        text = (ROOT / "examples" / name).read_text()
        (folder / name).write_text(text)
        (folder / "examples" / name).write_text(text)
    (folder / "pipeline.config").write_text(PIPELINE)
    for name, text in _trainable_configs().items():
        (folder / name).write_text(text)
    (folder / "edit_config.py").write_text(EDITING)
    _write_datasets(folder)
    return folder


def _trainable_configs() -> dict[str, str]:
    """What the pages about the Object Detection API forecast."""
    sys.path.append(str(ROOT / "tests" / "trace"))
    from tfod_models import CONFIGS, rcnn

    mask = rcnn("faster_rcnn_resnet50_keras", side=800, masks=True)
    return {"ssd_mobilenet_v2.config": CONFIGS["ssd_mobilenet_tf2"], "mask_rcnn.config": mask}


def _write_datasets(folder: Path) -> None:
    """What docs/data.md reads, under its names."""
    sys.path.append(str(ROOT / "tests" / "data" / "annotations"))  # pytest adds the folders of the tests it collects
    import dataset_files as files

    boxes = tuple(files.Box(x, 5, 20, 10) for x in (1, 15, 30))
    pictures = [files.Picture(f"{number}.png", 64, 48, boxes[:number]) for number in (1, 2, 3)]
    files.write_coco(pictures, folder / "annotations.json")
    files.write_images(pictures, folder / "train2017")
    files.write_voc(pictures, folder / "bccd")
    lists = files.write_voc(pictures, folder / "VOCdevkit" / "VOC2012") / "ImageSets" / "Main"
    lists.mkdir(parents=True)
    (lists / "train.txt").write_text("1\n2\n")
    files.write_images(pictures, files.write_yolo(pictures, folder / "coco128") / "images" / "val")
    files.write_records(pictures, folder / "coco_train.record-00000-of-00100")


@pytest.mark.parametrize(
    "command",
    [pytest.param(each, marks=THOROUGH) for each in SHOWN],
    ids=lambda command: f"{command.page}: {command.text}",
)
def test_shown_commands_end_as_claimed(
    command: Command, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if command.page in NEEDS_THE_API and missing_packages():
        pytest.skip(f"the Object Detection API is not installed (make tf-object-detection: {INSTALL})")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "100")
    code = main(shlex.split(command.text)[1:])
    out, err = capsys.readouterr()
    assert code == command.code, err
    assert out
    if command.printed and command.text not in NOT_HERE:
        if os.environ.get("RENEW_EXAMPLES"):
            renew(command, out)
        else:
            assert_shown(command.printed, out)


def assert_shown(printed: str, out: str) -> None:
    """Every stretch of what a page shows, figures too, stands in the output as it is; ``[...]`` is a gap."""
    rest = out
    for part in stretches(printed):
        assert part in rest, f"the page shows what is no longer printed; {RENEW}:\n{part}\n--- now:\n{rest}"
        rest = rest[rest.index(part) + len(part) :]


def stretches(printed: str) -> list[str]:
    return [part.strip("\n") for part in f"\n{printed}\n".split("\n[...]\n") if part.strip()]


def renew(command: Command, out: str) -> None:
    """Puts today's output in the place of each stretch: as many lines, from the line with the same first words on."""
    page = next(each for each in PAGES if each.name == command.page)
    text, lines = page.read_text(), out.splitlines()
    for part in stretches(command.printed):
        first = re.split(r"\d", part.splitlines()[0])[0]
        at = next(place for place, line in enumerate(lines) if line.startswith(first))
        text = text.replace(part, "\n".join(lines[at : at + len(part.splitlines())]), 1)
    page.write_text(text)


def test_a_page_that_shows_other_figures_is_found_and_renewed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    old = "Verdict  fits: 1.00 GiB\n[...]\nModules\n  layer 0.50"
    out = "Verdict  fits: 2.00 GiB\nWhy\nModules\n  layer 0.75"
    page.write_text(f"before\n{old}\nafter")
    monkeypatch.setattr(f"{__name__}.PAGES", [page])
    with pytest.raises(AssertionError, match="no longer printed"):
        assert_shown(old, out)
    renew(Command("page.md", "oomproof", 0, old), out)
    assert page.read_text() == "before\nVerdict  fits: 2.00 GiB\n[...]\nModules\n  layer 0.75\nafter"
    assert_shown("Verdict  fits: 2.00 GiB\n[...]\nModules\n  layer 0.75", out)


def test_every_command_is_found() -> None:
    shown = {command.page for command in SHOWN}
    assert {"README.md", "fit.md", "jobs.md", "json.md", "zoo.md"} <= shown
    assert {0, 2} == {command.code for command in SHOWN}
    lines = [
        line
        for page in PAGES
        for line in page.read_text().splitlines()
        if re.match(r"(\$ )?oomproof (check|data|explain|fit|zoo|gpus)", line)
    ]
    assert len(lines) == len(SHOWN), "a command outside of these blocks is not tested"


def test_the_page_about_jobs_shows_the_examples() -> None:
    jobs = ("train_job.py", "classifier.py", "own_step.py")
    shown = blocks(ROOT / "docs" / "jobs.md", "python")
    assert shown[: len(jobs)] == [(ROOT / "examples" / name).read_text() for name in jobs]
    assert sorted({*jobs, "train_fitted.py", "train_script.py"}) == EXAMPLES


def test_other_python_on_the_pages_runs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    for page in PAGES:
        for block in blocks(page, "python") if page.name not in WITH_YOURS else ():
            exec(compile(block, page.name, "exec"), {"__name__": "page"})


@pytest.mark.parametrize("page", WITH_YOURS)
def test_python_that_needs_your_own_model_imports_what_there_is(page: str) -> None:
    pytest.importorskip("tensorflow", reason="pages about Keras import it")
    imported = [
        (node.module, alias.name)
        for block in blocks(ROOT / "docs" / page, "python")
        for node in ast.walk(ast.parse(block))
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("oomproof")
        for alias in node.names
    ]
    for module, name in imported:
        found = importlib.import_module(str(module))
        assert name in getattr(found, "__all__", dir(found))


@pytest.mark.thorough
def test_the_demo_trains_as_planned(folder: Path) -> None:
    """Both trainings run for real; what is printed must be equal losses and gradients that differ by rounding."""
    settings = {"batch": 8, "checkpoint": "backbone.body.layer3,roi_heads.mask_predictor:8,rpn.head:1"}
    write_settings(folder / "plan.json", "train_job.py:job", "RTX 3070", settings)
    command, here = [sys.executable, "train_fitted.py", "plan.json"], {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, cwd=folder, env=here, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said = re.findall(r"loss ([\d.]+) plain, ([\d.]+) as planned; gradients differ by (\S+) ", done.stdout)
    assert len(said) == 2
    for plain, planned, apart in said:
        assert plain == planned and 0 < float(plain) < 100 and float(apart) < 1e-5


@pytest.mark.thorough
def test_the_example_detector_peaks_as_a_detector(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    few = oomproof.check("train_job.py:job", on="8GiB", batch=1, image_size=(320, 480))
    many = oomproof.check("train_job.py:job", on="8GiB", batch=1, image_size=(320, 480), boxes=200)
    assert many.allocated.expected > few.allocated.expected
    assert any(owner.startswith("roi_heads.mask_head") for owner, _ in few.owners)


@pytest.mark.thorough
def test_the_step_of_ones_own_is_in_half_precision_and_has_state(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    small = {"micro_batch": 2, "micro_batches": 2, "side": 224}
    half = oomproof.check("own_step.py:job", on="8GiB", **small)
    text = (folder / "own_step.py").read_text()
    assert text.count("dtype=torch.float16") == 1
    (folder / "single.py").write_text(text.replace("dtype=torch.float16", "enabled=False"))
    single = oomproof.check("single.py:job", on="8GiB", **small)
    assert half.kinds["optimizer"] == single.kinds["optimizer"] > 0
    assert half.kinds["activation"] < 0.85 * single.kinds["activation"]
