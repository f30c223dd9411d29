"""The grid behind the sliders, of a job whose lower figure is traced on its own."""

from __future__ import annotations

import pytest

import oomproof


@pytest.mark.slow
def test_a_detectors_cells_are_what_check_says() -> None:
    job = "torchvision:fasterrcnn_mobilenet_v3_large_320_fpn"
    own = {"batch": 2, "image_size": "160x160", "precision": "fp32"}
    grid = oomproof.what_if(job, "T4", {name: [value] for name, value in own.items()} | {"batch": [1]}, **own)
    assert [axis.values for axis in grid.axes] == [(1, 2), ((160, 160),), ("fp32",)]
    for place, batch in enumerate((1, 2)):
        fresh = oomproof.check(job, "T4", **{**own, "batch": batch})
        cell = grid.cells[place, 0, 0][0]
        assert (cell.allocated, cell.reserved, cell.on_device) == (fresh.allocated, fresh.reserved, fresh.on_device)
        assert cell.allocated.low < 0.99 * cell.allocated.expected, "on sparse data it takes less"
