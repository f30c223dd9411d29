"""The curve of a forecast: what a picture of the step shows."""

from __future__ import annotations

import numpy as np
from histories import timelines
from hypothesis import given, settings

from oomproof.memory.cards.devices import find_device
from oomproof.memory.curve import draw_curve
from oomproof.memory.make_forecast import build_forecast
from oomproof.memory.runtime import Runtime
from oomproof.memory.settings import Settings
from oomproof.memory.timeline import Builder, Timeline


@given(timeline=timelines())
@settings(max_examples=60, deadline=None)
def test_kinds_add_up_and_the_peak_is_on_it(timeline: Timeline) -> None:
    for points in (1, 3, 600):
        curve = draw_curve(timeline, points)
        assert len(curve.tick) <= points
        assert curve.live.tolist() == timeline.curve()[curve.tick].tolist()
        assert curve.live.max(initial=0) == timeline.peak().bytes
        assert np.all(np.diff(curve.tick) > 0)


def test_a_forecast_has_one() -> None:
    step = Builder()
    step.allocate(3 << 20, kind="parameter", owner="net", op="parameter")
    step.enter("forward")
    held = step.allocate(5 << 20, kind="activation", owner="net", op="conv", shape=(5, 1024, 256))
    step.enter("backward")
    step.free(held)
    found = build_forecast(step.build(), find_device("8GiB"), Runtime(), "job", Settings())
    assert found.curve is not None
    assert found.curve.live.max() == found.allocated.expected
    assert [phase for _, phase in found.curve.phases] == ["setup", "forward", "backward"]
    assert found.curve.kinds["activation"].max() == 5 << 20
    peak = int(found.curve.live.argmax())
    assert (found.curve.made[peak], found.curve.tensors[peak]) == (("net", "conv", 5 << 20), "[5, 1024, 256]")


def test_a_workspace_is_told_as_one() -> None:
    step = Builder()
    step.enter("forward")
    step.call(owner="conv1", spec={"op": "convolution", "x": [2, 3, 8, 8]})
    step.call(owner="sort", spec={"op": "sort", "elements": 9})
    curve = draw_curve(step.build().with_scratch(np.array([9, 9])))
    assert dict(zip([made[1] for made in curve.made], curve.tensors, strict=True)) == {
        "convolution": "workspace for [2, 3, 8, 8]",
        "sort": "workspace",
    }
