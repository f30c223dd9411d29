"""Advice names only settings the job has, and figures that would do."""

from __future__ import annotations

from dataclasses import replace

from oomproof.memory.cards.devices import Device
from oomproof.memory.forecast import Forecast
from oomproof.report.advice import next_steps
from oomproof.sources.job import Setting


def options(forecast: Forecast, settings: tuple[Setting, ...]) -> list[str]:
    return [step.option for step in next_steps(forecast, settings)[1]]


def test_the_surest_first(does_not_fit: Forecast, settings: tuple[Setting, ...]) -> None:
    assert options(does_not_fit, settings) == [
        "--batch 1",
        "--image-size 480x800",
        "--set precision=bf16",
        "--set expandable_segments=true",
    ]


def test_bf16_only_where_the_gpu_computes_in_it(does_not_fit: Forecast, settings: tuple[Setting, ...]) -> None:
    turing = replace(does_not_fit, device=Device("RTX 2060", does_not_fit.device.total, "turing", (7, 5)))
    assert "--set precision=fp16" in options(turing, settings)


def test_only_settings_the_job_has(does_not_fit: Forecast, settings: tuple[Setting, ...]) -> None:
    batch_alone = tuple(one for one in settings if one.name == "batch")
    assert options(does_not_fit, batch_alone) == ["--batch 1"]
    sentence, steps = next_steps(does_not_fit, ())
    assert not steps
    assert sentence == "save 2.10 GiB to be safe: make the job smaller (batch, fp16, image size)"


def test_batch_is_as_large_as_should_fit(does_not_fit: Forecast, settings: tuple[Setting, ...]) -> None:
    sixteen = replace(does_not_fit, settings=does_not_fit.settings.changed({"batch": 16}))
    assert "--batch 8" in options(sixteen, settings)  # 4.48 GiB scale, 2.10 have to go: 16 * 0.53
    one = replace(does_not_fit, settings=does_not_fit.settings.changed({"batch": 1}))
    assert not any(option.startswith("--batch") for option in options(one, settings))


def test_nothing_is_offered_that_is_done_already(does_not_fit: Forecast, settings: tuple[Setting, ...]) -> None:
    thrifty = does_not_fit.settings.changed({"precision": "fp16", "expandable_segments": True})
    assert options(replace(does_not_fit, settings=thrifty), settings) == ["--batch 1", "--image-size 480x800"]


def test_a_job_that_fits_is_left_alone(fits: Forecast, settings: tuple[Setting, ...]) -> None:
    sentence, steps = next_steps(fits, settings)
    assert "--sweep batch=1..16" in sentence
    assert not steps
    assert "--sweep" not in next_steps(fits, ())[0]


def test_image_size_is_no_help_where_the_model_resizes(does_not_fit: Forecast, settings: tuple[Setting, ...]) -> None:
    resizing = replace(does_not_fit, settings=does_not_fit.settings.changed({"resize": "model"}))
    assert not any(option.startswith("--image-size") for option in options(resizing, settings))


def test_checkpointing_and_the_fused_update_where_the_job_has_them(does_not_fit: Forecast) -> None:
    settings = (
        Setting("checkpoint", "none", ""),
        Setting("update", "auto", "", ("auto", "foreach", "fused", "plain")),
    )
    values = does_not_fit.settings.changed({"checkpoint": "none", "update": "auto"})
    assert options(replace(does_not_fit, settings=values), settings) == ["--set checkpoint=nonreentrant"]
    in_update = replace(does_not_fit, settings=values.changed({"checkpoint": "reentrant"}), phase="optimizer")
    assert options(in_update, settings) == ["--set update=fused"]


def test_optimizer_state_is_named_where_it_weighs(does_not_fit: Forecast, settings: tuple[Setting, ...]) -> None:
    heavy = replace(
        does_not_fit,
        settings=does_not_fit.settings.changed({"optimizer": "adamw"}),
        kinds={**does_not_fit.kinds, "optimizer": 2 << 30},
    )
    assert "--set optimizer=sgd" in options(heavy, settings)


def test_fit_is_named_where_it_can_help(does_not_fit: Forecast, settings: tuple[Setting, ...]) -> None:
    assert "`oomproof fit` finds the best way" in next_steps(does_not_fit, settings)[0]
    of_a_saved_step = tuple(one for one in settings if one.name == "expandable_segments")
    sentence, steps = next_steps(does_not_fit, of_a_saved_step)
    assert steps and "oomproof fit" not in sentence
