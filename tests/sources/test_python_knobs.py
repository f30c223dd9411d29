"""Knobs of a user's own job: what the names and annotations of its parameters say, and what the job says itself."""

from __future__ import annotations

import doctest
import json
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oomproof.errors import InputError
from oomproof.memory.about import About
from oomproof.sources import open_job
from oomproof.sources.job import Knob
from oomproof.sources.python.job import PythonJob
from oomproof.sources.python.knobs import parameter_knobs
from oomproof.sources.settings import resolve
from oomproof.trace.request import TraceRequest

JOB = """
from typing import Literal
import torch
from oomproof import TorchJob

def job(batch=4, {parameters}):
    return TorchJob(
        model=lambda: torch.nn.Linear(8, {width}),
        batch=lambda: torch.rand(batch, 8),
        loss=lambda net, x: net(x).square().mean(),{more}
    )
"""
Open = Callable[..., PythonJob]


@pytest.fixture
def opened(tmp_path: Path) -> Open:
    def opened(parameters: str, width: str = "8", more: str = "", head: str = "") -> PythonJob:
        text = head + textwrap.dedent(JOB).format(parameters=parameters, width=width, more=more)
        (tmp_path / "train.py").write_text(text)
        job = open_job(f"{tmp_path / 'train.py'}:job")
        assert isinstance(job, PythonJob)
        return job

    return opened


def guessed(job: PythonJob, **given: Any) -> dict[str, Knob]:
    return {knob.name: knob for knob in parameter_knobs(job.parameters, job.literals, resolve(job, given))}


def values(knob: Knob) -> list[Any]:
    return [option.value for option in knob.options]


@pytest.mark.parametrize("name", ["image_size", "size", "side", "img_size", "imgsz", "resolution"])
def test_image_sizes_by_their_usual_names(opened: Open, name: str) -> None:
    one = guessed(opened(f"{name}=224"))[name]
    assert values(one) == [224, 192, 160, 128, 96]
    assert [option.settings for option in one.options[1:3]] == [{name: 192}, {name: 160}]
    two = guessed(opened(f"{name}=(480, 640)"))[name]
    assert values(two)[:2] == [(480, 640), (448, 608)]
    assert all(knob.promise == "different" for knob in (one, two))


def test_patches_are_kept(opened: Open) -> None:
    assert all(side % 14 == 0 for side in values(guessed(opened("side=518"))["side"]))


def test_anchors_follow_where_the_job_has_them(opened: Open) -> None:
    knob = guessed(opened("image_size=(640, 640), anchor_scale=2.0"))["image_size"]
    assert knob.options[0].settings == {"image_size": (640, 640), "anchor_scale": 2.0}
    assert knob.options[-1].settings == {"image_size": (256, 256), "anchor_scale": 0.8}


@pytest.mark.parametrize("parameters", ["side=None", "side='large'", "size=0", "width=8", "queries=0.5", "depth=3"])
def test_what_says_nothing_is_left_alone(opened: Open, parameters: str) -> None:
    assert guessed(opened(parameters)) == {}


def test_queries_stay_above_the_objects(opened: Open) -> None:
    assert values(guessed(opened("num_queries=300"))["num_queries"]) == [300, 225, 150, 75]
    assert values(guessed(opened("queries=100, boxes=40"))["queries"]) == [100, 75, 50]
    assert guessed(opened("queries=100, boxes=80")) == {}


def test_widths(opened: Open) -> None:
    assert values(guessed(opened("width_mult=1.0"))["width_mult"]) == [1.0, 0.75, 0.5, 0.25]
    assert values(guessed(opened("width=0.5"))["width"]) == [0.5, 0.375, 0.25, 0.125]


def test_literals_are_choices_and_knobs_in_their_order(opened: Open) -> None:
    job = opened("net: Literal['large', 'base', 'tiny'] = 'base'")
    assert [s.choices for s in job.settings if s.name == "net"] == [("large", "base", "tiny")]
    knob = guessed(job)["net"]
    assert values(knob) == ["base", "tiny"]
    assert knob.options[0].harm < knob.options[1].harm
    assert guessed(job, net="tiny") == {}
    with pytest.raises(InputError, match="net must be one of large, base, tiny; got 'huge'"):
        resolve(job, {"net": "huge"})


def test_numbers_of_a_literal_reach_the_job_as_numbers(opened: Open) -> None:
    job = opened("width: Literal[64, 32] = 64", width="width")
    for given in ({"width": "32"}, {"width": 32}, guessed(job)["width"].options[1].settings):
        timeline = job.trace(TraceRequest(resolve(job, given)))
        assert timeline.by_kind(timeline.ticks - 1)["parameter"] == 4 * 32 * 9


def test_annotations_as_texts(opened: Open) -> None:
    late = "from __future__ import annotations\n"
    assert values(guessed(opened("net: Literal['a', 'b'] = 'a'", head=late))["net"]) == ["a", "b"]
    assert guessed(opened("net: NoSuchName = 'a'", head=late)) == {}
    other = "net: Literal['a', 'b'] = 'a', odd: NoSuchName = 'a'"
    assert values(guessed(opened(other, head=late))["net"]) == ["a", "b"]


def test_a_default_outside_its_literal(opened: Open) -> None:
    with pytest.raises(InputError, match=r"default of 'net' must be one of its Literal's values \(a, b\); it is 'c'"):
        opened("net: Literal['a', 'b'] = 'c'")


def test_what_the_job_says_itself_wins(opened: Open) -> None:
    options = "(Option(64, {'side': 64}), Option(8, {'side': 8}, 0.5))"
    own = f"\n        extra_knobs=(Knob('side', {options}, 'different', 'mine'),),"
    job = opened("side=64, imgsz=64", more=own, head="from oomproof.sources.job import Knob, Option\n")
    found = {knob.name: knob for knob in job.knobs(resolve(job, {}), About())}
    assert values(found["side"]) == [64, 8] and found["side"].why == "mine"
    assert values(found["imgsz"])[0] == 64
    assert {"precision", "checkpoint"} <= set(found)  # those of every PyTorch job
    assert len(found) == len(job.knobs(resolve(job, {}), About()))


def test_a_parameter_hides_the_knob_of_every_job(opened: Open) -> None:
    """Here half precision is the job's own affair, and fp16 is not among its choices."""
    job = opened("precision: Literal['fp32', 'bf16'] = 'fp32'")
    found = [knob for knob in job.knobs(resolve(job, {}), About()) if knob.name == "precision"]
    assert [values(knob) for knob in found] == [["fp32", "bf16"]]


def test_writing_says_what_to_paste(opened: Open, tmp_path: Path) -> None:
    job = opened("side=64, net: Literal['a', 'b'] = 'a'")
    settings = resolve(job, {"batch": 2, "accumulate": 2, "net": "b"})
    assert job.place == tmp_path / "train.oomproof.json"
    text = job.write(settings, None)
    assert json.loads(job.place.read_text())["settings"]["net"] == "b"
    assert "from train import job" in text
    assert "pieces = job(batch=2, net='b')" in text
    assert f"oomproof.Step(model, optimizer, loss, {str(job.place)!r})" in text
    assert "all images of an update: the step takes at most 2 at a time" in text
    assert "# batches of 2 images\n" in job.write(resolve(job, {"batch": 2}), None)
    other = tmp_path / "other.json"
    assert str(other) in job.write(settings, other)
    assert other.is_file()


def test_what_no_step_can_set_is_said(opened: Open) -> None:
    job = opened("side=64")
    plain = job.write(resolve(job, {}), None)
    assert "PYTORCH_CUDA_ALLOC_CONF" not in plain and "optimizer = ...  # as you make it today" in plain
    wanted = {"expandable_segments": True, "ddp": True, "gradient_as_bucket_view": True, "optimizer": "adafactor"}
    text = job.write(resolve(job, wanted), None)
    assert "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True" in text
    assert "gradient_as_bucket_view=True" in text
    assert "optimizer = ...  # adafactor, as the settings have it" in text


def test_a_width_of_ones_own_is_no_cut(opened: Open) -> None:
    job = opened("side=64, width=128")
    assert "slim" not in job.write(resolve(job, {"width": 96}), None)
    job = opened("side=64")
    assert "model = oomproof.slim(model, 0.5, " in job.write(resolve(job, {"width": 0.5}), None)


def test_a_step_of_ones_own_stays_so(opened: Open) -> None:
    job = opened("side=64")
    job.path.write_text(job.path.read_text().replace("loss=lambda net, x:", "step=lambda net, x, o:"))
    job = open_job(f"{job.path}:job")
    assert isinstance(job, PythonJob)
    text = job.write(resolve(job, {"side": 32}), None)
    assert "pieces = job(side=32)" in text
    assert "step(model, batch, optimizer)" in text and "oomproof.Step" not in text
    assert {knob.name for knob in job.knobs(resolve(job, {}), About())} == {"side"}


def test_examples_in_docstrings_are_true() -> None:
    from oomproof.sources import image_sizes

    failed, run = doctest.testmod(image_sizes)
    assert (failed, run) == (0, 3)
