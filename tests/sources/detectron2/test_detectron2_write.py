"""Plans go back into configs: what is read back is the plan, and lines that it does not name are as they were."""

from __future__ import annotations

import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from detectron2_samples import NAMES, SAMPLES, dumped
from hypothesis import given, settings
from hypothesis import strategies as st

from oomproof.errors import InputError
from oomproof.memory.about import About
from oomproof.sources import open_job
from oomproof.sources.detectron2.config.config import read
from oomproof.sources.detectron2.config.yaml_file import parse
from oomproof.sources.detectron2.job import Detectron2Job
from oomproof.sources.detectron2.write import edit_text
from oomproof.sources.settings import resolve


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for each in SAMPLES.iterdir():
        shutil.copy(each, tmp_path)
    return tmp_path


EVERY = (*NAMES, "dumped.yaml")
_FOLDER = tempfile.TemporaryDirectory()


@cache
def opened(name: str) -> tuple[Detectron2Job, dict[str, Any], Path]:
    """A sample, or a config as Detectron2 dumps it, in a folder of its own; with its settings."""
    folder = Path(_FOLDER.name)
    for each in SAMPLES.iterdir():
        shutil.copy(each, folder)
    (folder / "dumped.yaml").write_text(dumped({"MODEL.MASK_ON": True, "DATALOADER.ASPECT_RATIO_GROUPING": False}))
    job = open_job(str(folder / name))
    assert isinstance(job, Detectron2Job)
    return job, resolve(job, {}), folder / name


@given(name=st.sampled_from(EVERY), picks=st.lists(st.integers(0, 8), min_size=12, max_size=12))
@settings(deadline=None, max_examples=80)
def test_any_knobs_in_any_sample(name: str, picks: list[int]) -> None:
    job, present, path = opened(name)
    plan = present
    for knob, pick in zip(job.knobs(present, About()), picks, strict=False):
        plan = plan.with_values(knob.options[pick % len(knob.options)].settings)
    planned = job.values(plan)
    before = path.read_bytes().decode()
    after = edit_text(path, planned, path)

    target = path.with_name("after.yaml")
    target.write_bytes(after.encode())
    assert dict(read(target).values) == planned
    assert _untouched(before, planned, job) == _kept(before, after, planned, job)


def _untouched(text: str, planned: dict[str, Any], job: Detectron2Job) -> list[str]:
    """The lines of the file that hold no value of a key that changes, line ends included. An alias of a value that
    changes has to be written out."""
    touched: set[int] = set()
    for key, place in parse(text, "before").places.items():
        if key in planned and (planned[key] != job.config.values[key] or place.form == "elsewhere"):
            first, last = text.count("\n", 0, place.colon), text.count("\n", 0, max(place.colon, place.end))
            touched |= set(range(first, last + 1))
    return [line for number, line in enumerate(text.splitlines(keepends=True)) if number not in touched]


def _kept(before: str, after: str, planned: dict[str, Any], job: Detectron2Job) -> list[str]:
    """Those of them that come again in the new text, in order. The last line may get an end that it had not."""
    lines = after.splitlines(keepends=True)
    found = []
    for line in _untouched(before, planned, job):
        place = next((n for n, each in enumerate(lines) if each == line or each.rstrip("\r\n") == line), None)
        if place is None:
            continue
        found.append(line)
        lines = lines[place + 1 :]
    return found


def test_a_plan_that_changes_nothing_changes_no_byte() -> None:
    for name in EVERY:
        job, present, path = opened(name)
        assert edit_text(path, job.values(present), path) == path.read_bytes().decode()


def test_the_file_itself_is_edited_and_its_first_form_kept(folder: Path) -> None:
    path = folder / "instance.yaml"
    before = path.read_text()
    job = open_job(str(path))
    plan = {**resolve(job, {"precision": "bf16"}), "SOLVER.IMS_PER_BATCH": 4, "accumulate": 4}
    assert job.place == path
    told = job.write(plan, None, device="8.00 GiB", changes=["SOLVER.IMS_PER_BATCH: 16 -> 4 x 4"])
    after = path.read_text()
    assert after == before.replace("IMS_PER_BATCH: 16", "IMS_PER_BATCH: 4").replace(
        "  MAX_ITER: 90000\n", "  MAX_ITER: 90000\n  AMP:\n    ENABLED: True\n"
    )
    assert (folder / "instance.yaml.orig").read_text() == before
    assert "SOLVER.IMS_PER_BATCH 16 -> 4" in told and "Accumulate(4)" in told and "16 images" in told
    assert "precision = torch.bfloat16" in told
    assert "merge_from_file" not in told  # the training reads this file already
    assert read(path).values["SOLVER.BASE_LR"] == 0.02


def test_in_another_folder_the_base_is_found_all_the_same(folder: Path) -> None:
    job = open_job(str(folder / "child.yaml"))
    target = folder / "deep" / "fitted.yaml"
    target.parent.mkdir()
    job.write(resolve(job, {}).with_values({"SOLVER.IMS_PER_BATCH": 2}), target)
    assert '_BASE_: "../shared.yaml"' in target.read_text()
    found = read(target)
    assert found.values == {**read(folder / "child.yaml").values, "SOLVER.IMS_PER_BATCH": 2}
    assert not found.notes


def test_a_published_config_becomes_a_file_of_its_own(tmp_path: Path) -> None:
    job = open_job("mask_rcnn_R_50_FPN_3x.yaml", ("MODEL.ROI_HEADS.NUM_CLASSES", "3"))
    target = tmp_path / "fitted.yaml"
    changed = {"SOLVER.IMS_PER_BATCH": 8, "checkpoint": "backbone.bottom_up.res4", "zero_grad": "before_forward"}
    plan = resolve(job, {}).with_values({**changed, "expandable_segments": True})
    told = job.write(plan, target, device="RTX 3060", changes=["two\nlines"])
    text = target.read_text()
    assert text.startswith("# mask_rcnn_R_50_FPN_3x.yaml, as oomproof fitted it to RTX 3060\n# two lines\nVERSION: 2\n")
    published = read("mask_rcnn_R_50_FPN_3x.yaml").values
    assert read(target).values == {**published, "MODEL.ROI_HEADS.NUM_CLASSES": 3, "SOLVER.IMS_PER_BATCH": 8}
    assert "checkpoint_stages(trainer.model, 'backbone.bottom_up.res4')" in told
    assert "zero_grad_before_forward = True" in told and "expandable_segments:True" in told
    assert f"cfg.merge_from_file('{target}')" in told
    assert job.place == Path("mask_rcnn_R_50_FPN_3x.fitted.yaml")


def test_what_the_command_line_changed_is_written_too(folder: Path) -> None:
    path = folder / "instance.yaml"
    job = open_job(str(path), ("INPUT.MAX_SIZE_TRAIN", "1000"))
    told = job.write(resolve(job, {}), folder / "fitted.yaml")
    assert "INPUT.MAX_SIZE_TRAIN 1333 -> 1000" in told
    assert read(folder / "fitted.yaml").values["INPUT.MAX_SIZE_TRAIN"] == 1000


def test_an_old_config_is_not_given_new_names(tmp_path: Path) -> None:
    path = tmp_path / "old.yaml"
    path.write_text("MODEL:\n  WEIGHT: w.pkl\nSOLVER:\n  IMS_PER_BATCH: 8\n")
    job = open_job(str(path))
    with pytest.raises(InputError, match="old version"):
        job.write(resolve(job, {}).with_values({"MODEL.WEIGHTS": "v.pkl"}), None)
    assert not (tmp_path / "old.yaml.orig").exists()
    job.write(resolve(job, {}).with_values({"SOLVER.IMS_PER_BATCH": 4}), None)
    assert path.read_text() == "MODEL:\n  WEIGHT: w.pkl\nSOLVER:\n  IMS_PER_BATCH: 4\n"


def test_nothing_is_written_where_nothing_can_be(folder: Path) -> None:
    job = open_job(str(folder / "instance.yaml"))
    with pytest.raises(InputError, match="cannot be written"):
        job.write(resolve(job, {}), folder / "instance.yaml" / "fitted.yaml")


def test_a_config_that_changed_since_it_was_read_is_left_alone(folder: Path) -> None:
    path = folder / NAMES[0]
    job = open_job(str(path))
    path.write_text(text := path.read_text() + "# and a line more\n")
    with pytest.raises(InputError, match=r"has changed since it was read.*fit it again"):
        job.write(resolve(job, {}), path)
    assert path.read_text() == text
