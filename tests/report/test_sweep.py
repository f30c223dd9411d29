"""The sweep report: a row a value, and the largest that fits."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

import oomproof
from oomproof.errors import JobError
from oomproof.memory.forecast import Forecast, Range, Seconds
from oomproof.memory.sweep import Sweep
from oomproof.report.sweep import conclusion, report


@pytest.mark.parametrize("width", [60, 120])
def test_rows_and_the_largest(width: int, fits: Forecast, at_risk: Forecast, does_not_fit: Forecast) -> None:
    file = io.StringIO()
    sweep = Sweep("batch", ((1, fits), (2, fits), (3, at_risk), (4, does_not_fit)))
    Console(file=file, width=width).print(report(sweep))
    text = file.getvalue()
    assert [line.split()[-1] for line in text.splitlines() if line.lstrip()[:1].isdigit()][:4] == [
        "fits",
        "fits",
        "risk",
        "fit",
    ]
    assert "The largest batch that fits RTX 3060 12GB is 2: 6.10 of" in text
    assert max(len(line) for line in text.splitlines()) <= width


def test_rows_say_how_long_a_step_takes(fits: Forecast) -> None:
    file = io.StringIO()
    timed = replace(fits, step_seconds=Seconds(0.114, 0.08, 0.15))
    Console(file=file, width=100).print(report(Sweep("batch", ((1, timed), (2, replace(fits, step_seconds=None))))))
    lines = file.getvalue().splitlines()
    assert "step, s  outcome" in lines[2]
    assert lines[3].split()[-2:] == ["0.11", "fits"]


def test_largest_by_value_not_by_place(fits: Forecast) -> None:
    assert Sweep("batch", ((8, fits), (2, fits))).largest == 8
    assert Sweep("image_size", (((640, 640), fits), ((480, 1333), fits))).largest == (480, 1333)


@pytest.mark.slow
def test_a_value_that_cannot_be_trained_does_not_cost_the_others(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(
        "import torch\nfrom oomproof import TorchJob\n\n\n"
        "def job(batch=2):\n"
        "    model = lambda: torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.BatchNorm1d(4))\n"
        "    images = lambda: (torch.rand(batch, 8),)\n"
        "    return TorchJob(model, batch=images, loss=lambda model, batch: model(batch[0]).sum())\n"
    )
    job = f"{tmp_path / 'job.py'}:job"
    swept = oomproof.sweep(job, "8GiB", "batch", [1, 2, 4])
    assert [setting for setting, _ in swept.rows] == [2, 4]
    [(setting, why)] = swept.refused
    assert setting == 1 and "Expected more than 1 value per channel" in why
    file = io.StringIO()
    Console(file=file, width=200).print(report(swept))
    text = file.getvalue()
    assert "batch 1 cannot be trained: " in text and "The largest batch that fits 8.00 GiB is 4" in text
    with pytest.raises(JobError, match="Expected more than 1 value per channel"):
        oomproof.sweep(job, "8GiB", "batch", [1])


def test_values_without_a_size(fits: Forecast, does_not_fit: Forecast) -> None:
    sweep = Sweep("precision", (("fp32", does_not_fit), ("fp16", fits), ("bf16", fits)))
    assert sweep.largest is None
    assert conclusion(sweep) == "4GiB fits precision: fp16, bf16."
    assert Sweep("ddp", ((True, fits), (False, fits))).largest is None


def test_none_fits(does_not_fit: Forecast) -> None:
    assert conclusion(Sweep("batch", ((1, does_not_fit),))) == "None of these values of batch fits 4GiB."


def with_ram(of: Forecast, gib: float, ram: int = 8 << 30) -> Forecast:
    high = int(gib * (1 << 30))
    return replace(of, ram=ram, host=Range(high - (1 << 29), high - (1 << 30), high))


def test_the_host_has_its_columns_where_its_ram_is_known(fits: Forecast) -> None:
    rows = tuple((workers, with_ram(fits, 4 + workers)) for workers in (0, 2, 4, 8))
    swept = Sweep("DATALOADER.NUM_WORKERS", rows)
    file = io.StringIO()
    Console(file=file, width=100).print(report(swept))
    text = file.getvalue()
    assert "with 8.00 GiB of host RAM; figures in GiB" in text
    assert "host RAM  at worst" in text
    lines = {line.split()[0]: line.split() for line in text.splitlines() if line.strip()[:1].isdigit()}
    assert lines["4"] == ["4", "5.84", "6.10", "7.50", "8.00", "fits"]
    assert " ".join(lines["8"]).endswith("11.50 12.00 does not fit (host RAM)")
    assert conclusion(swept).endswith("is 4: 6.10 of 11.76 GiB at worst, and 8.00 of 8.00 GiB host RAM.")


def test_where_only_the_host_is_short_the_summary_says_so(fits: Forecast) -> None:
    swept = Sweep("workers", ((2, with_ram(fits, 10)), (4, with_ram(fits, 12))))
    assert conclusion(swept) == (
        "None of these values of workers fits RTX 3060 12GB: the device has room, but the least of them takes 10.00 of "
        "8.00 GiB host RAM at worst."
    )
