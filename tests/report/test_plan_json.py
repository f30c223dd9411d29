"""Plans for programs: the keys docs/json.md promises, bytes as integers, nothing JSON cannot say."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
from plans import MODULES, as_it_is, brought_to_fit, too_large

from oomproof.report import as_json, plan_json
from oomproof.sources.job import Knob, Option

KEYS = [
    "verdict", "fits", "job", "device_name", "budget", "settings", "changes", "time", "promise", "before",
    "before_estimated", "after", "alternatives", "frontier", "needs", "attempts", "interrupted", "traces", "seconds",
    "written",
]  # fmt: skip


def test_keys_and_figures() -> None:
    document = json.loads(as_json.text(plan_json.plan(brought_to_fit(), Path("here.json"))))
    assert list(document) == KEYS
    assert document["fits"] is True
    assert document["settings"]["image_size"] == [800, 1333]
    assert document["changes"][0] == {
        "knob": "checkpoint",
        "from": "none",
        "to": MODULES,
        "promise": "identical",
        "frees": round(2.4 * (1 << 30)),
        "time": 1.12,
        "why": "12 blocks are computed again in backward; the least recompute for the bytes needed",
        "settings": {"checkpoint": MODULES},
        "frees_host": 0,
    }
    assert document["before"]["device"]["expected"] == round(24.3 * (1 << 30))
    assert document["after"]["fits"] is True
    assert document["promise"] == "equivalent"
    assert [point["chosen"] for point in document["frontier"]] == [False, False, True, False, False]
    assert set(document["alternatives"][0]) == {"changes", "promise", "device", "time", "reason"}
    assert document["written"] == "here.json"


def test_plans_that_fit_as_they_are_or_not_at_all() -> None:
    fits = plan_json.plan(as_it_is())
    assert (fits["fits"], fits["changes"], fits["written"]) == (True, [], None)
    misses = plan_json.plan(too_large())
    assert misses["fits"] is False
    assert misses["needs"][0].startswith("--allow image_size")


def test_bytes_are_integers_whatever_the_planner_counts_with() -> None:
    plan = brought_to_fit()
    change = replace(plan.changes[0], frees=np.int64(3), time=np.float64(1.5))
    point = replace(plan.frontier[0], device=np.int64(5))
    other = replace(plan.alternatives[0], device=np.float64(7))
    odd = replace(plan, changes=(change,), frontier=(point,), alternatives=(other,))
    document = json.loads(as_json.text(plan_json.plan(odd)))
    figures = document["changes"][0]["frees"], document["frontier"][0]["device"], document["alternatives"][0]["device"]
    assert figures == (3, 5, 7)
    assert {type(figure) for figure in figures} == {int}


def test_knobs() -> None:
    knob = Knob("image_size", (Option((800, 1333), {"image_size": (800, 1333)}, 0.25, "note"),), "different", "why")
    assert plan_json.knobs([knob]) == [
        {
            "name": "image_size",
            "promise": "different",
            "why": "why",
            "host": False,
            "options": [{"value": [800, 1333], "settings": {"image_size": [800, 1333]}, "harm": 0.25, "note": "note"}],
        }
    ]


def test_the_page_explains_every_key() -> None:
    page = (Path(__file__).parents[2] / "docs" / "json.md").read_text()
    _, _, section = page.partition("oomproof fit --json")
    explained = set(re.findall(r"`(\w+)`", section))
    assert not set(KEYS) - explained
    document = plan_json.plan(brought_to_fit())
    shown = json.loads(section.split("```json\n")[1].split("```")[0])
    assert list(shown) == KEYS
    for part in ("changes", "alternatives", "frontier"):
        assert {tuple(row) for row in shown[part]} == {tuple(document[part][0])}, part
    inner = {key for part in ("changes", "alternatives", "frontier") for key in document[part][0]}
    assert not inner - explained
