"""``oomproof fit`` with the real planner and a job of one's own: from the search to the written file and back."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

Run = Callable[..., Any]

JOB = """
import torch
from torch import nn
from oomproof import TorchJob

def job(batch: int = 96, image_size: int = 128):
    def model():
        layers = [layer for _ in range(6) for layer in (nn.Conv2d(16, 16, 3, padding=1), nn.ReLU())]
        ends = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))
        return nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), *layers, *ends)

    return TorchJob(
        model=model,
        batch=lambda: (torch.rand(batch, 3, image_size, image_size), torch.zeros(batch, dtype=torch.long)),
        loss=lambda model, batch: nn.functional.cross_entropy(model(batch[0]), batch[1]),
    )
"""


@pytest.fixture
def train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(JOB)


def test_what_is_written_fits_when_checked_again(run: Run, train: None, tmp_path: Path) -> None:
    code, out, _ = run("fit", "train.py:job", "--on", "1.2GiB", "--write", "--json")
    plan = json.loads(out)
    assert (code, plan["fits"], plan["before"]["fits"]) == (0, True, False)
    assert plan["settings"]["batch"] * plan["settings"]["accumulate"] == 96
    assert Path(plan["written"]).resolve() == (tmp_path / "train.oomproof.json").resolve()
    code, out, _ = run("check", "train.py:job", "--on", "1.2GiB", "--from", plan["written"], "--json")
    assert code == 0
    assert json.loads(out)["device"] == plan["after"]["device"]


def test_identical_changes_only(run: Run, train: None) -> None:
    code, out, _ = run("fit", "train.py:job", "--on", "1.2GiB", "--keep", "identical", "--json")
    plan = json.loads(out)
    assert code in (0, 2)
    assert plan["promise"] == "identical"
    assert plan["settings"]["precision"] == "fp32"


def test_nothing_fits(run: Run, train: None) -> None:
    code, out, _ = run("fit", "train.py:job", "--on", "920MiB", "--keep", "identical", "-q")
    assert code == 2
    assert out.startswith("Verdict  does not fit 0.90 GiB")
    assert "--keep equivalent" in out.partition("it would take")[2]


def test_a_knob_that_the_job_cannot_turn_is_not_offered(run: Run, train: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch_pruning", None)  # as where the extra is not installed
    left = "batch,checkpoint,precision,channels_last"
    code, out, err = run("fit", "train.py:job", "--on", "1.1GiB", "--leave", left, "-q")
    assert (code, err) == (2, "")
    assert "--allow image_size" in out and "--allow width" not in out


def test_a_budget_below_what_any_setting_needs(run: Run, train: None) -> None:
    code, out, err = run("fit", "train.py:job", "--on", "100MiB", "-q")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "0.10 GiB" in err


def test_words_that_contradict_or_are_unknown(run: Run, train: None) -> None:
    on = ("fit", "train.py:job", "--on", "1.2GiB", "-q")
    for words in (("--keep", "identical", "--allow", "image_size"), ("--allow", "no_such_knob")):
        code, out, err = run(*on, *words)
        assert (code, out, err.count("\n")) == (1, "", 1)
        assert words[-1] in err


def test_knobs(run: Run, train: None) -> None:
    out = run("fit", "train.py:job", "--on", "1.2GiB", "--knobs", "-q").out
    assert "96 -> 48 x 2" in out
    assert "image_size" in out


def test_host_ram_is_made_enough(run: Run, train: None) -> None:
    arguments = ("fit", "train.py:job", "--on", "8GiB", "--batch", "4", "--set", "workers=8", "-q")
    code, out, _ = run(*arguments, "--ram", "6.5GiB", "--json")
    document = json.loads(out)
    assert code == 0 and document["fits"] and document["after"]["ram"] == 13 << 29
    [change] = document["changes"]
    assert (change["knob"], change["to"], change["frees"]) == ("workers", 4, 0)
    assert change["frees_host"] == document["before"]["host"]["high"] - document["after"]["host"]["high"] > 1 << 30
    code, out, _ = run(*arguments, "--ram", "6.5GiB", "--keep", "identical")
    told = " ".join(out.split())
    assert code == 2 and "at risk on the host" in told and "--keep equivalent: workers 4 would fit the host's" in told
    code, out, _ = run(*arguments, "--ram", "6.5GiB", "--write")
    assert code == 0 and "# give DataLoader num_workers=4, prefetch_factor=2" in out
    code, _, err = run(*arguments, "--allow", "workers")
    assert code == 1 and "workers saves host RAM alone" in err
