"""Forecasts of a few dozen jobs, byte for byte as they were: what only moves code must not move them.

``forecasts.json`` was made with the versions of constraints.txt. A change that means to move a figure brings its
evidence (CONTRIBUTING.md) and the new figures here: ``python tests/golden/test_golden_forecasts.py``.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
from pathlib import Path
from typing import Any

import pytest

from oomproof.cli import main

FILE = Path(__file__).with_name("forecasts.json")
GOLDEN: dict[str, dict[str, Any]] = json.loads(FILE.read_text())
ROOT = Path(__file__).parents[2]
QUICK = ("tv_r50", "d2_retina")


def told(arguments: list[str]) -> dict[str, Any]:
    """What the command says now, of what is kept."""
    out, here = io.StringIO(), Path.cwd()
    os.chdir(ROOT)
    try:
        with contextlib.redirect_stdout(out):
            assert main(arguments) in (0, 2)
    finally:
        os.chdir(here)
    found = json.loads(out.getvalue())
    return {
        name: found[name] for name in ("fits", "budget", "allocated", "reserved", "device", "host", "kinds", "peak")
    }


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.thorough) for name in GOLDEN]
)
def test_figures_are_as_they_were(name: str) -> None:
    kept = dict(GOLDEN[name])
    assert told(kept.pop("arguments")) == kept


if __name__ == "__main__":
    now = {name: {"arguments": row["arguments"], **told(row["arguments"])} for name, row in GOLDEN.items()}
    FILE.write_text(json.dumps(now, indent=1) + "\n")
