"""Reports on jobs whose settings are keys of a config: notes, advice and values in the config's own words."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from oomproof.memory.forecast import Forecast, Hint
from oomproof.memory.settings import Role, Settings
from oomproof.report import terminal
from oomproof.report.advice import next_steps
from oomproof.sources.job import Setting

KEYS = (
    Setting("SOLVER.IMS_PER_BATCH", 16, "images a step", given_as="SOLVER.IMS_PER_BATCH {value}"),
    Setting("SOLVER.AMP.ENABLED", False, "half precision", given_as="SOLVER.AMP.ENABLED {value}"),
    Setting("SOLVER.STEPS", (60000, 80000), "where the learning rate falls"),
    Setting("INPUT.MIN_SIZE_TRAIN", (800,), "shorter side"),
    Setting("image_size", (800, 1333), "height x width"),
    Setting("precision", "fp32", "arithmetic", ("fp32", "fp16", "bf16")),
    Setting("gpus", 1, "GPUs"),
)

ROLES: dict[Role, str] = {
    "batch": "SOLVER.IMS_PER_BATCH",
    "image size": "image_size",
    "precision": "precision",
    "gpus": "gpus",
}


def of_config(forecast: Forecast, batch: int, gpus: int) -> Forecast:
    values = {setting.name: setting.default for setting in KEYS}
    return replace(forecast, settings=Settings({**values, "SOLVER.IMS_PER_BATCH": batch, "gpus": gpus}, ROLES))


def options(forecast: Forecast) -> list[str]:
    return [step.option for step in next_steps(forecast, KEYS)[1]]


def drawn(forecast: Forecast) -> str:
    file = io.StringIO()
    Console(file=file, width=120, highlight=False).print(terminal.report(forecast, KEYS))
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines())


def test_advice_speaks_the_keys(does_not_fit: Forecast) -> None:
    hints = (
        Hint("SOLVER.IMS_PER_BATCH", {"SOLVER.IMS_PER_BATCH": 1}, 1 << 30, "equivalent", "fewer images"),
        Hint("SOLVER.AMP.ENABLED", {"SOLVER.AMP.ENABLED": True}, None, "equivalent", "autocast"),
    )
    assert options(replace(of_config(does_not_fit, 2, 1), hints=hints)) == [
        "SOLVER.IMS_PER_BATCH 1",
        "SOLVER.AMP.ENABLED True",
    ]


def test_a_sweep_is_offered_where_any_number_will_do(fits: Forecast) -> None:
    assert "--sweep SOLVER.IMS_PER_BATCH=1..16" in next_steps(of_config(fits, 2, 1), KEYS)[0]
    assert "--sweep" not in next_steps(of_config(fits, 16, 8), KEYS)[0]


def test_notes_and_values(fits: Forecast) -> None:
    told = replace(of_config(fits, 2, 1), notes=("SOLVER.ACCUMULATION_STEPS does nothing",))
    other = replace(told, settings=told.settings.with_values({"SOLVER.STEPS": (1, 2), "image_size": (600, 900)}))
    text = drawn(other)
    assert "\nNotes\n  - SOLVER.ACCUMULATION_STEPS does nothing\n" in text
    assert "SOLVER.STEPS (1, 2)" in text and "image_size 600x900" in text
    assert "Notes" not in drawn(fits)
