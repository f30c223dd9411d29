"""A curve as a page keeps it."""

from __future__ import annotations

import numpy as np
import pytest

from oomproof.memory.curve import Curve
from oomproof.page.curve import POINTS_OF_A_CELL, curve_of_cell, list_phases


def drawn(phases: list[tuple[int, str]], length: int = 10_000) -> Curve:
    return Curve(np.array([0, length]), {"activation": np.array([1, 2])}, tuple(phases))


def test_phases_that_take_turns_are_one_of_both() -> None:
    turns = [(3000 + 2 * place, ("backward", "optimizer")[place % 2]) for place in range(2000)]
    told = list_phases(drawn([(0, "setup"), (600, "forward"), *turns, (7000, "forward")]))
    assert told == [(0, "setup"), (600, "forward"), (3000, "backward and optimizer"), (7000, "forward")]


def test_what_cannot_be_seen_is_no_phase() -> None:
    told = list_phases(drawn([(0, "setup"), (5, "forward"), (3000, "backward"), (3010, "forward"), (6000, "backward")]))
    assert told == [(5, "forward"), (6000, "backward")]
    assert list_phases(drawn([(0, "setup")], 0)) == []


@pytest.mark.parametrize("points", [0, 1, 7, 600])
def test_a_cells_curve_keeps_its_peak(points: int) -> None:
    chance = np.random.default_rng(points)
    kinds = {kind: chance.integers(0, 1 << 40, points) for kind in ("parameter", "activation")}
    curve = Curve(np.arange(points) * 3, {**kinds, "buffer": np.zeros(points, dtype=np.int64)}, ())
    kept = curve_of_cell(curve)
    assert kept is not None and "buffer" not in kept["kinds"], "nothing is kept of what takes nothing"
    assert len(kept["tick"]) == min(points, POINTS_OF_A_CELL)
    live = sum(np.cumsum(changes) for changes in kept["kinds"].values())
    assert np.max(live, initial=0) == curve.live.max(initial=0)
    assert set(np.cumsum(kept["tick"])) <= set(curve.tick)
