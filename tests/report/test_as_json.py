"""The JSON contract of docs/json.md, key by key and type by type: a change here breaks somebody's script."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from oomproof.memory.forecast import Forecast
from oomproof.memory.sweep import Sweep
from oomproof.report import as_json
from oomproof.sources.job import Setting

RANGE = {"expected": int, "low": int, "high": int}
FORECAST = {
    "verdict": str,
    "fits": bool,
    "job": str,
    "settings": dict,
    "device_name": str,
    "budget": int,
    "allocated": RANGE,
    "reserved": RANGE,
    "device": RANGE,
    "host": {**RANGE, "shm": int},
    "ram": type(None),
    "kinds": dict,
    "owners": list,
    "peak": {"phase": str, "owner": str, "op": str},
    "not_counted": list,
    "notes": list,
    "step_seconds": type(None),
    "shm_limit": type(None),
    "validation": type(None),
    "decides": str,
    "outcomes": dict,
    "host_parts": dict,
    "data": type(None),
    "unseen": list,
}


def assert_schema(document: Any, schema: Any) -> None:
    if isinstance(schema, dict):
        assert list(document) == list(schema)
        for key in schema:
            assert_schema(document[key], schema[key])
    else:
        assert type(document) is schema


def test_forecast_schema(fits: Forecast) -> None:
    document = json.loads(as_json.text(as_json.forecast(fits)))
    assert_schema(document, FORECAST)
    assert document["fits"] is True
    assert document["verdict"] == "fits RTX 3060 12GB: 5.84 of 11.76 GiB (at worst 6.10)"
    assert document["settings"]["image_size"] == [800, 1333]
    assert sum(document["kinds"].values()) == document["allocated"]["expected"]
    assert all([type(owner), type(nbytes)] == [str, int] for owner, nbytes in document["owners"])


def test_at_risk_is_not_fitting(at_risk: Forecast) -> None:
    assert as_json.forecast(at_risk)["fits"] is False


def test_sweep_schema(fits: Forecast, does_not_fit: Forecast) -> None:
    document = json.loads(as_json.text(as_json.sweep(Sweep("batch", ((2, fits), (4, does_not_fit))))))
    assert list(document) == ["sweep", "rows", "largest", "refused"]
    assert (document["sweep"], document["largest"]) == ("batch", 2)
    for row in document["rows"]:
        assert_schema(row, {"value": int, **FORECAST})
    assert as_json.sweep(Sweep("batch", ((4, does_not_fit),)))["largest"] is None


def test_settings_schema(settings: tuple[Setting, ...]) -> None:
    for row in json.loads(as_json.text(as_json.settings(settings))):
        assert list(row) == ["name", "default", "help", "choices"]


def test_the_documented_example_keeps_the_contract() -> None:
    page = (Path(__file__).parents[2] / "docs" / "json.md").read_text()
    example = re.search(r"```json\n(\{.*?\n\})\n```", page, re.DOTALL)
    assert example is not None
    seconds = {"expected": float, "low": float, "high": float}
    assert_schema(json.loads(example[1]), {**FORECAST, "step_seconds": seconds})
