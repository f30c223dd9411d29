"""What every PyTorch job may change, and what each change promises for this one."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import pytest

from oomproof.changes.torch.training import CHOICES, Training
from oomproof.memory.about import About
from oomproof.memory.settings import Settings
from oomproof.sources.job import PROMISES, Knob
from oomproof.sources.torch.knobs import training_knobs

PLAIN = About(separable=True, optimizer="SGD")


def knobs(
    facts: dict[str, Any] | None = None, *, mean: bool = True, matches: bool = False, **settings: Any
) -> dict[str, Knob]:
    given = Settings({**vars(Training()), "batch": 8, **settings}, {"batch": "batch"})
    found = training_knobs(given, replace(PLAIN, **(facts or {})), mean_over_images=mean, matching=matches)
    by_name = {knob.name: knob for knob in found}
    assert len(by_name) == len(found)
    for knob in found:  # the present one first, and nothing offered that is there already
        assert all(given[name] == value for name, value in knob.options[0].settings.items())
        assert all(option.settings != knob.options[0].settings for option in knob.options[1:])
        assert knob.promise in PROMISES and knob.why
    return by_name


def values(knob: Knob) -> list[Any]:
    return [option.value for option in knob.options]


@pytest.mark.parametrize("batch", [2, 7, 12, 64])
@pytest.mark.parametrize("accumulate", [1, 2, 3])
def test_the_effective_batch_is_kept(batch: int, accumulate: int) -> None:
    options = knobs(batch=batch, accumulate=accumulate)["batch"].options
    for option in options:  # as the step cuts it: into as many parts as it takes, which differ by an image at most
        size, count = option.settings["batch"], option.settings["accumulate"]
        assert count == math.ceil(batch * accumulate / size)
        assert size == math.ceil(batch * accumulate / count)
    sizes = [option.settings["batch"] for option in options]
    assert sizes == sorted(set(sizes), reverse=True)
    assert set(sizes) >= {size for size in range(1, batch + 1) if batch % size == 0}
    assert all(larger <= 2 * smaller for larger, smaller in itertools.pairwise(sizes))


@pytest.mark.parametrize("batch", [8, 12, 16, 32])
def test_where_halves_will_do_nothing_uneven_is_tried(batch: int) -> None:
    for option in knobs(batch=batch)["batch"].options:
        assert option.settings["batch"] * option.settings["accumulate"] == batch


def test_uneven_micro_batches_say_what_they_are() -> None:
    assert values(knobs(batch=13)["batch"]) == [
        13,
        "7 + 6",
        "5 + 4 x 2",
        "4 + 3 x 3",
        "3 x 3 + 2 x 2",
        "2 x 6 + 1",
        "1 x 13",
    ]


def test_one_image_is_not_equivalent_under_batchnorm() -> None:
    *others, alone = knobs({"batchnorms": 3}, batch=16)["batch"].options
    assert alone.value == "1 x 16"
    assert alone.promise == "different"
    assert "image by itself" in alone.note
    assert not any(option.promise for option in others)
    assert ["so few images" in option.note for option in others] == [False, False, True, True]
    assert not any(option.promise for option in knobs(batch=16)["batch"].options)


@pytest.mark.parametrize("batch", [3, 5, 7, 13])
def test_no_image_is_left_over_under_batchnorm(batch: int) -> None:
    """It would be normalised by itself, and networks that normalise single values raise."""
    options = knobs({"batchnorms": 3}, batch=batch)["batch"].options
    for option in options:
        size, count = option.settings["batch"], option.settings["accumulate"]
        assert size == 1 or batch // count > 1, option.value
    assert options[-1].value == f"1 x {batch}"


def test_micro_batches_as_people_say_them() -> None:
    assert values(knobs(batch=4)["batch"]) == [4, "2 x 2", "1 x 4"]
    assert values(knobs(batch=3, accumulate=2)["batch"]) == ["3 x 2", "2 x 3", "1 x 6"]


def test_nothing_smaller_than_one_image() -> None:
    assert "batch" not in knobs(batch=1)
    settings = Settings({**vars(Training()), "rows": 8})
    assert "rows" not in {knob.name for knob in training_knobs(settings, PLAIN, mean_over_images=True, matching=False)}


@pytest.mark.parametrize(
    ("facts", "mean", "promise", "why"),
    [
        ({}, True, "identical", "mean over images"),
        ({"batchnorms": 3}, True, "equivalent", "BatchNorm"),
        ({}, False, "equivalent", "counts of the whole batch"),
        ({"separable": False}, True, "equivalent", "random"),
    ],
)
def test_micro_batches_promise_what_loss_and_norms_allow(
    facts: dict[str, Any], mean: bool, promise: str, why: str
) -> None:
    knob = knobs(facts, mean=mean)["batch"]
    assert knob.promise == promise and why in knob.why


def test_identical_are_those_that_tests_prove() -> None:
    every = knobs({"batchnorms": 1, "optimizer": "AdamW"}, matches=True, zero_grad="before_backward")
    assert {name for name, knob in every.items() if knob.promise == "identical"} == {
        "zero_grad",
        "update",
        "matching",
        "checkpoint",
        "optimizer_state",
    }
    eight = next(option for option in every["optimizer_state"].options if option.value == "8bit")
    assert eight.promise == "equivalent" and eight.harm > 0


def test_what_is_so_already_is_not_offered() -> None:
    found = knobs(
        {"batchnorms": 0, "optimizer": "Adafactor"},
        precision="bf16",
        update="plain",
        checkpoint="nonreentrant",
        channels_last=True,
        optimizer_state="8bit",
        matching="chunked",
        matches=True,
        freeze_batchnorm=True,
    )
    assert set(found) - {"width"} == {"batch"}
    assert "update" not in knobs(update="fused")  # makes no lists of copies


def test_what_only_some_jobs_have() -> None:
    assert {"matching", "freeze_batchnorm", "optimizer", "zero_grad"}.isdisjoint(knobs())
    assert "matching" in knobs(matches=True) and "matching" in knobs({"matching": True})
    assert knobs({"batchnorms": 2})["freeze_batchnorm"].promise == "different"
    adafactor = knobs({"optimizer": "AdamW"})["optimizer"]
    assert values(adafactor) == ["own", "adafactor"] and adafactor.promise == "different"
    assert values(knobs(zero_grad="before_backward")["zero_grad"]) == ["before_backward", "before_forward"]
    assert values(knobs(zero_grad="keep")["zero_grad"]) == ["keep", "before_forward"]


def test_every_value_is_one_that_the_setting_takes() -> None:
    for knob in knobs({"batchnorms": 1, "optimizer": "Adam"}, matches=True, zero_grad="keep").values():
        for option in knob.options:
            for name, value in option.settings.items():
                assert name not in CHOICES or value in CHOICES[name]
