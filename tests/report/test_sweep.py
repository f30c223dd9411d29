"""The sweep report: a row a value, and the largest that fits."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from oomproof.memory.forecast import Forecast
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


def test_largest_by_value_not_by_place(fits: Forecast) -> None:
    assert Sweep("batch", ((8, fits), (2, fits))).largest == 8
    assert Sweep("image_size", (((640, 640), fits), ((480, 1333), fits))).largest == (480, 1333)


def test_values_without_a_size(fits: Forecast, does_not_fit: Forecast) -> None:
    sweep = Sweep("precision", (("fp32", does_not_fit), ("fp16", fits), ("bf16", fits)))
    assert sweep.largest is None
    assert conclusion(sweep) == "4GiB fits precision: fp16, bf16."
    assert Sweep("ddp", ((True, fits), (False, fits))).largest is None


def test_none_fits(does_not_fit: Forecast) -> None:
    assert conclusion(Sweep("batch", ((1, does_not_fit),))) == "None of these values of batch fits 4GiB."
