"""Advice in words: the hints of a forecast as options that the job has, with what they save."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oomproof.memory.forecast import Forecast, Hint
from oomproof.report.advice import next_steps
from oomproof.sources.job import Setting

GIB = 1 << 30
BATCH = Hint("batch", {"batch": 1, "accumulate": 2}, 5 * GIB // 2, "equivalent", "fewer images at a time")
SMALLER = Hint("image_size", {"image_size": (480, 800)}, 2 * GIB, "different", "fine detail is lost first")
HALF = Hint("precision", {"precision": "bf16"}, None, "equivalent", "autocast")
AGAIN = Hint("checkpoint", {}, 3 * GIB, "identical", "names modules", at_most=True)
ACCUMULATE = Setting("accumulate", 1, "micro-batches")


def told(forecast: Forecast, settings: tuple[Setting, ...], *hints: Hint) -> list[tuple[str, str]]:
    steps = next_steps(replace(forecast, hints=hints), settings)[1]
    return [(step.option, step.reason) for step in steps]


@pytest.mark.parametrize(
    ("hint", "option", "reason"),
    [
        (BATCH, "--batch 1 --set accumulate=2", "saves about 2.50 GiB: fewer images at a time"),
        (
            SMALLER,
            "--image-size 480x800",
            "saves about 2.00 GiB: fine detail is lost first; makes another training",
        ),
        (HALF, "--set precision=bf16", "a check with it shows what it saves: autocast"),
        (AGAIN, "oomproof fit", "saves up to 3.00 GiB: names modules"),
    ],
    ids=lambda value: value.knob if isinstance(value, Hint) else "",
)
def test_hints_in_words(
    does_not_fit: Forecast, settings: tuple[Setting, ...], hint: Hint, option: str, reason: str
) -> None:
    assert told(does_not_fit, (*settings, ACCUMULATE), hint) == [(option, reason)]


def test_what_is_too_much_for_a_line_is_left_to_a_plan(does_not_fit: Forecast) -> None:
    settings = tuple(Setting(name, 0, "") for name in ("A.SIZES", "B", "C", "D"))
    nested = Hint("A.SIZES", {"A.SIZES": [[32], [64]]}, GIB, "different", "why")
    many = Hint("B", dict.fromkeys(("A.SIZES", "B", "C", "D"), 1), GIB, "equivalent", "why")
    assert [option for option, _ in told(does_not_fit, settings, nested, many)] == [
        "oomproof fit --allow A.SIZES",
        "oomproof fit",
    ]


def test_a_setting_that_follows_another_is_not_named(does_not_fit: Forecast) -> None:
    settings = (
        Setting("SOLVER.AMP.ENABLED", False, "", given_as="SOLVER.AMP.ENABLED {value}"),
        Setting("precision", "fp32", "", follows=lambda values: "fp16"),
    )
    hint = Hint("SOLVER.AMP.ENABLED", {"SOLVER.AMP.ENABLED": True, "precision": "fp16"}, None, "equivalent", "why")
    assert [option for option, _ in told(does_not_fit, settings, hint)] == ["SOLVER.AMP.ENABLED True"]


def test_values_with_blanks_are_quoted(does_not_fit: Forecast) -> None:
    settings = (Setting("INPUT.MIN_SIZE_TRAIN", (800,), "", given_as="INPUT.MIN_SIZE_TRAIN {value}"),)
    hint = Hint("INPUT.MIN_SIZE_TRAIN", {"INPUT.MIN_SIZE_TRAIN": (480, 512)}, GIB, "different", "why")
    assert [option for option, _ in told(does_not_fit, settings, hint)] == ['INPUT.MIN_SIZE_TRAIN "(480, 512)"']


def test_nothing_helps(does_not_fit: Forecast, settings: tuple[Setting, ...]) -> None:
    assert next_steps(does_not_fit, settings) == ("save 2.10 GiB to be safe: a larger GPU is what is left", ())
    sentence, steps = next_steps(does_not_fit, ())
    assert not steps
    assert sentence == "save 2.10 GiB to be safe: make the job smaller (batch, fp16, image size)"


def test_a_job_that_fits_is_left_alone(fits: Forecast, settings: tuple[Setting, ...]) -> None:
    sentence, steps = next_steps(fits, settings)
    assert "--sweep batch=1..16" in sentence
    assert not steps
    assert "--sweep" not in next_steps(fits, ())[0]


def test_a_large_batch_that_fits_is_swept_upwards(fits: Forecast, settings: tuple[Setting, ...]) -> None:
    of_many = replace(fits, settings=fits.settings.with_values({"batch": 32}))
    assert "--sweep batch=32..512 finds the largest batch" in next_steps(of_many, settings)[0]


def test_fit_is_named_where_it_can_help(does_not_fit: Forecast, settings: tuple[Setting, ...]) -> None:
    helped = replace(does_not_fit, hints=(BATCH,))
    assert "`oomproof fit` finds the best way" in next_steps(helped, settings)[0]
    of_a_saved_step = tuple(one for one in settings if one.name == "expandable_segments")
    sentence, steps = next_steps(helped, of_a_saved_step)
    assert steps and "oomproof fit" not in sentence
