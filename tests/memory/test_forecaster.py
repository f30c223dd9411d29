"""From a Timeline to a Forecast: the levels, the edges of a budget, and what each setting of the run changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from histories import timelines
from hypothesis import given, settings
from hypothesis import strategies as st

from oomproof.memory import make_forecast as forecaster
from oomproof.memory.about import About
from oomproof.memory.cards.devices import Device, find_device
from oomproof.memory.forecast import Forecast
from oomproof.memory.lasting import context
from oomproof.memory.runtime import Runtime
from oomproof.memory.scratch import cpu, cuda, price_calls
from oomproof.memory.settings import Settings
from oomproof.memory.timeline import KINDS, Builder, Timeline
from oomproof.report.verdict import verdict

MIB = 1 << 20
PLAIN = Runtime()
RTX = find_device("RTX 3060")

CONVOLUTION = {
    "op": "convolution",
    "x": [8, 64, 64, 64],
    "w": [64, 64, 3, 3],
    "y": [8, 64, 64, 64],
    "stride": [1, 1],
    "padding": [1, 1],
    "dilation": [1, 1],
    "transposed": False,
    "groups": 1,
    "dtype": "float32",
    "item": 4,
    "channels_last": False,
}
"""x and y of 8 MiB, w of 144 KiB"""


def training(about: About | None = None, *, scale: int = 1, call: dict[str, Any] | None = None) -> Timeline:
    """Four layers: weights, activations kept for backward, gradients that outlive the step, state of the optimizer."""
    step = Builder()
    layers = [f"body.{number}" for number in range(4)]
    for layer in layers:
        step.allocate(3 * MIB + 40, kind="parameter", owner=layer, op="parameter")
        step.allocate(3 * MIB + 40, kind="optimizer", owner=layer, op="zeros_like")
    step.allocate(6 * MIB, kind="input", owner="(step)", op="input")
    step.enter("forward")
    kept = []
    for layer in layers:
        passing = step.allocate(scale * 30 * MIB, kind="temporary", owner=layer, op="batch_norm")
        step.call(owner=layer, spec=CONVOLUTION | (call or {}))
        kept.append(step.allocate(scale * 50 * MIB + 7, kind="activation", owner=layer, op="convolution"))
        step.free(passing)
    step.enter("backward")
    for layer, activation in zip(reversed(layers), reversed(kept), strict=True):
        slope = step.allocate(scale * 40 * MIB, kind="temporary", owner=layer, op="convolution_backward")
        step.allocate(3 * MIB + 40, kind="gradient", owner=layer, op="convolution_backward")
        step.free(slope)
        step.free(activation)
    step.enter("optimizer")
    step.free(step.allocate(3 * MIB, kind="temporary", owner="(step)", op="_foreach_sqrt"))
    return step.build(about or About(job="hand-made"))


def convolution(about: About | None = None, **call: Any) -> Timeline:
    """A block of 200 MiB, and a convolution that takes its workspace beside it, at the peak."""
    step = Builder()
    step.enter("forward")
    step.allocate(200 * MIB, kind="activation", owner="net", op="relu")
    step.call(owner="net", spec=CONVOLUTION | call)
    return step.build(about)


def check(timeline: Timeline, device: Device = RTX, runtime: Runtime = PLAIN) -> Forecast:
    return forecaster.build_forecast(timeline, device, runtime, "job", Settings({"batch": 8}))


def of(total: int) -> Device:
    return replace(RTX, name="some", total=total)


def smallest(is_enough: Callable[[int], bool], low: int, high: int) -> int:
    """The least budget in bytes that is enough."""
    assert not is_enough(low) and is_enough(high)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high


def without_calls(timeline: Timeline) -> Timeline:
    none = {name: getattr(timeline.calls, name)[:0] for name in ("tick", "owner", "phase", "spec")}
    return replace(timeline, calls=replace(timeline.calls, **none))


TIMELINES = {
    "training": training(),
    "large": training(scale=20),
    "no calls": without_calls(training()),
    "cpu": training(About(dialect="cpu", threads=4)),
    "empty": Builder().build(),
}


@pytest.mark.parametrize("runtime", [PLAIN, Runtime(ddp=True, cudnn_benchmark=True), Runtime(expandable_segments=True)])
@pytest.mark.parametrize("name", TIMELINES)
def test_levels_are_ordered_and_kinds_add_up(name: str, runtime: Runtime) -> None:
    for device in (RTX, find_device("GTX 1080 Ti"), find_device("H100"), find_device("64MiB"), find_device("500GiB")):
        found = check(TIMELINES[name], device, runtime)
        for level in (found.allocated, found.reserved, found.on_device, found.host):
            assert 0 <= level.low <= level.expected <= level.high
        for figure in ("low", "expected", "high"):
            levels = [getattr(level, figure) for level in (found.allocated, found.reserved, found.on_device)]
            assert levels == sorted(levels), figure
        assert sum(found.kinds.values()) == found.allocated.expected
        assert sum(size for _, size in found.owners) == found.allocated.expected
        assert tuple(found.kinds) == KINDS
        assert max(found.phases.values(), default=0) <= found.allocated.expected


def test_figures_of_a_step_one_can_add_up() -> None:
    """At the peak: 4 x (3 MiB + 40 B) of weights and of state, 6 MiB of input, 4 x 50 MiB + 7 B, 40 MiB, cuBLAS."""
    found = check(TIMELINES["no calls"])
    large, small = 50 * MIB + 512, 3 * MIB + 512
    assert found.kinds == {
        **dict.fromkeys(KINDS, 0),
        "parameter": 4 * small,
        "optimizer": 4 * small,
        "input": 6 * MIB,
        "activation": 4 * large,
        "gradient": small,
        "temporary": 40 * MIB,
        "workspace": 2 * 8519680,
    }
    assert (found.phase, found.owner, found.op) == ("backward", "body.3", "convolution_backward")
    around = context(RTX)
    assert found.context == around.expected == found.on_device.expected - found.reserved.expected
    assert found.on_device.high - found.reserved.high == around.high
    assert found.on_device.low - found.reserved.low == around.low
    assert found.reserved.low == found.allocated.low < found.allocated.expected
    assert found.job == "job"
    assert found.settings == {"batch": 8}


@pytest.mark.parametrize("dialect", ["cpu", "cuda"])
def test_the_upper_figure_leaves_room_for_what_no_model_covers(dialect: str) -> None:
    found = check(without_calls(training(About(dialect=dialect))))
    margin = 1 + forecaster.UNMODELLED[dialect]
    assert margin > 1
    assert found.allocated.high == int(found.allocated.expected * margin)
    assert found.reserved.high == int(found.reserved.expected * margin)


def test_edges_of_the_budget() -> None:
    """One byte decides: does not fit, at risk, fits; and never back again."""
    timeline = training(scale=4)
    lowest, highest = 300 * MIB, 8 << 30

    def outcome(total: int) -> str:
        return check(timeline, of(total)).outcome

    possible = smallest(lambda total: outcome(total) != "does not fit", lowest, highest)
    safe = smallest(lambda total: outcome(total) == "fits", lowest, highest)
    assert possible < safe
    assert outcome(possible - 1) == "does not fit"
    assert outcome(possible) == outcome(safe - 1) == "at risk"
    assert outcome(safe) == "fits"
    order = ("does not fit", "at risk", "fits")
    seen = [order.index(outcome(total)) for total in range(lowest, safe + 400 * MIB, 37 * MIB + 11)]
    assert seen == sorted(seen) and set(seen) == {0, 1, 2}


def test_a_fit_means_that_the_upper_figure_without_cache_fits() -> None:
    timeline = training(scale=4)
    safe = smallest(lambda total: check(timeline, of(total)).fits, 300 * MIB, 8 << 30)
    found = check(timeline, of(safe))
    low = 4 * 4 * (50 * MIB) + 4 * 40 * MIB + 2 * 4 * 3 * MIB  # activations, a slope, weights and state
    assert safe >= low + context(RTX).high
    assert found.allocated.low + context(RTX).high <= safe


def cached() -> Timeline:
    """500 MiB live at most, but no segment of the first phase serves the second: 900 MiB are reserved."""
    step = Builder()
    step.enter("forward")
    first = [step.allocate(100 * MIB, kind="activation", owner="early", op="conv") for _ in range(4)]
    for block in first:
        step.free(block)
    step.enter("backward")
    step.allocate(500 * MIB, kind="activation", owner="late", op="mm")
    return step.build()


def test_cache_that_must_be_given_back_is_no_shortage() -> None:
    timeline, around = cached(), context(RTX)
    room = 600 * MIB
    assert check(timeline).reserved.expected > 900 * MIB
    tight = check(timeline, of(room + around.expected))
    assert tight.shortage is None
    assert tight.allocated.expected <= tight.reserved.expected <= room
    assert tight.on_device.expected <= tight.budget
    assert check(timeline, of(480 * MIB + around.expected)).shortage is not None


def test_what_gets_through_only_by_giving_cache_back_is_at_risk() -> None:
    """Of 185 batches that died for real, two would have been served so."""
    timeline = cached()
    within = check(timeline, of(700 * MIB + context(RTX).high))
    assert within.shortage_at_worst is None and within.gives_back
    assert within.outcome == "at risk" and within.on_device.high > within.budget
    enough = check(timeline, of(1100 * MIB + context(RTX).high))
    assert enough.fits and not enough.gives_back


def test_a_workspace_that_does_not_fit_is_no_shortage() -> None:
    """cuDNN goes on with less: 200 MiB of blocks must fit, a workspace of 256 MiB beside them need not."""
    timeline = convolution(x=[256, 64, 64, 64], y=[256, 64, 64, 64])
    around = context(RTX)
    workspace = int(price_calls(timeline, cuda.price(RTX))[0][0])
    assert workspace > 200 * MIB
    assert check(timeline).kinds["workspace"] > workspace
    assert check(timeline, of(around.expected + 250 * MIB)).shortage is None
    assert check(timeline, of(around.expected + 190 * MIB)).shortage is not None


@pytest.mark.parametrize("allocator", ["cuda", "bfc"])
def test_what_fits_with_smaller_workspaces_alone_says_so(allocator: str) -> None:
    """Every budget between that of the blocks and one in which all is at ease."""
    timeline = convolution(About(allocator=allocator), x=[256, 64, 64, 64], y=[256, 64, 64, 64])
    said = [verdict(found) for gib in range(10, 60) if (found := check(timeline, of(gib * (1 << 30) // 10))).fits]
    tight = ["with less workspace" in each for each in said]
    assert tight[0] and not tight[-1] and tight == sorted(tight, reverse=True)


def test_levels_stay_in_order_where_a_workspace_does_not_fit() -> None:
    timeline = convolution(x=[256, 64, 64, 64], y=[256, 64, 64, 64])
    tight = check(timeline, of(context(RTX).expected + 250 * MIB))
    assert tight.allocated.expected <= tight.reserved.expected


def test_a_block_as_large_as_the_workspace_is_a_shortage() -> None:
    step = Builder()
    step.enter("forward")
    step.allocate(200 * MIB, kind="activation", owner="net", op="relu")
    step.free(step.allocate(256 * MIB, kind="temporary", owner="net", op="relu"))
    assert check(step.build(), of(context(RTX).expected + 250 * MIB)).shortage is not None


def test_a_shortage_names_what_asked() -> None:
    timeline = training(scale=20)
    found = check(timeline, of(context(RTX).expected + 3000 * MIB))
    shortage = found.shortage
    assert shortage is not None
    # weights, state, input, cuBLAS: 46 MiB; 50 MiB x 20 a layer: the third layer's activation is too much
    assert (shortage.phase, shortage.owner, shortage.op) == ("forward", "body.2", "convolution")
    assert shortage.requested == 1000 * MIB + 7
    assert found.shortage_at_worst == shortage
    assert not found.fits


def test_at_worst_alone() -> None:
    timeline = training(scale=4)
    possible = smallest(lambda total: check(timeline, of(total)).shortage is None, 300 * MIB, 8 << 30)
    found = check(timeline, of(possible))
    assert found.shortage is None
    assert found.shortage_at_worst is not None
    assert found.outcome == "at risk"


def test_ddp_is_one_more_copy_of_the_gradients() -> None:
    timeline = training()
    plain, ddp = check(timeline), check(timeline, runtime=Runtime(ddp=True))
    one_copy = 4 * (3 * MIB + 40)
    extra = -(-one_copy // 512) * 512
    assert ddp.kinds["gradient"] - plain.kinds["gradient"] == extra
    assert ddp.allocated.expected - plain.allocated.expected == extra
    views = check(timeline, runtime=Runtime(ddp=True, gradient_as_bucket_view=True))
    outlived = "buckets outlive zero_grad"
    assert plain.allocated.expected < views.allocated.expected <= ddp.allocated.expected, outlived
    assert check(timeline, runtime=Runtime(gradient_as_bucket_view=True)).allocated == plain.allocated


def test_allocator_settings_reach_the_replay() -> None:
    timeline = cached()
    default = check(timeline)
    expandable = check(timeline, runtime=Runtime(expandable_segments=True))
    assert expandable.reserved.expected < default.reserved.expected - 300 * MIB
    assert expandable.allocated == default.allocated

    step = Builder()  # a cached segment of 300 MiB is cut up by requests of 30 MiB, unless that is forbidden
    step.free(step.allocate(300 * MIB, kind="temporary", owner="net", op="cat"))
    for _ in range(10):
        step.allocate(30 * MIB, kind="activation", owner="net", op="relu")
    unsplit = check(step.build(), runtime=Runtime(max_split_size_mb=100))
    assert unsplit.reserved.expected - check(step.build()).reserved.expected == 300 * MIB


def test_benchmark_mode_raises_the_upper_figure_alone() -> None:
    timeline = training(call={"x": [8, 64, 200, 200], "y": [8, 64, 200, 200]})
    plain, fastest = check(timeline), check(timeline, runtime=Runtime(cudnn_benchmark=True))
    assert fastest.allocated.high > plain.allocated.high
    assert fastest.reserved.high > plain.reserved.high
    assert replace(fastest.allocated, high=0) == replace(plain.allocated, high=0)
    assert replace(fastest.reserved, high=0) == replace(plain.reserved, high=0)
    assert fastest.kinds == plain.kinds


def test_the_cpus_dialect_has_its_own_prices_and_no_cublas() -> None:
    timeline = training(About(dialect="cpu", threads=2), call={"channels_last": True})
    scratch, _, _ = price_calls(timeline, cpu.price(2))
    assert scratch.max() > 0
    peak = timeline.with_scratch(scratch).peak().bytes
    assert check(timeline).allocated.expected == peak, "bytes as they are: the CPU's allocator has no granule"
    assert peak % 512
    assert check(timeline).kinds["workspace"] < 8519680


def test_threads_reach_the_cpus_prices() -> None:
    few, many = (check(convolution(About(dialect="cpu", threads=threads))).allocated for threads in (1, 64))
    assert many.high > few.high
    assert many.expected == few.expected


def test_what_others_hold_is_not_ours() -> None:
    timeline = training(scale=4)
    safe = smallest(lambda total: check(timeline, of(total)).fits, 300 * MIB, 8 << 30)
    shared = replace(of(safe + 700 * MIB), held=700 * MIB, held_by=("python 4711",))
    assert check(timeline, shared).fits
    assert check(timeline, shared).budget == safe
    assert not check(timeline, replace(shared, held=700 * MIB + 1)).fits
    crowded = check(timeline, replace(shared, held=shared.total + MIB))
    assert (crowded.budget, crowded.outcome) == (0, "does not fit")


def test_what_the_tracer_did_not_count_is_carried() -> None:
    note = "the second stream of the data loader"
    found = check(training(About(not_counted=(note,))))
    assert found.not_counted[0] == note
    assert set(forecaster.NOT_COUNTED) < set(found.not_counted)
    assert check(training()).not_counted == forecaster.NOT_COUNTED


def test_runtime_is_read_from_settings() -> None:
    settings = {"batch": 2, "workers": 3, "ddp": True, "precision": "fp16"}
    assert forecaster.at_runtime(settings) == Runtime(workers=3, ddp=True)
    assert forecaster.at_runtime({}) == PLAIN


def test_the_forecast_is_for_the_device_that_computes() -> None:
    """fp32 convolutions of 3 x 3: Winograd's workspace before tensor cores took fp32, converted tensors since."""
    old, new = (check(convolution(), find_device(name)).kinds["workspace"] for name in ("GTX 1080 Ti", "RTX 3060"))
    assert old > new > 2 * 8519680


@given(timeline=timelines(), gib=st.floats(0.2, 3.0), bfc=st.booleans(), growth=st.booleans(), split=st.booleans())
@settings(max_examples=150, deadline=None)
def test_fits_means_that_every_upper_figure_is_within_its_budget(
    timeline: Timeline, gib: float, bfc: bool, growth: bool, split: bool
) -> None:
    """One rule for every framework."""
    plain = without_calls(timeline)
    about = About(allocator="bfc" if bfc else "cuda")
    large = replace(plain, bytes=timeline.bytes << 12, calls=replace(plain.calls, specs=()), about=about)
    runtime = Runtime(memory_growth=growth) if bfc else Runtime(expandable_segments=split)
    device = Device("a card", int(gib * 2**30), "ampere", (8, 6))
    found = forecaster.build_forecast(large, device, runtime, "job", Settings())
    within = found.on_device.high <= found.budget and found.shortage_at_worst is None
    assert found.fits == within
    if found.fits:
        assert found.room is None or found.reserved.high <= found.room
        assert found.on_device.expected <= found.on_device.high <= found.budget
    for level in (found.allocated, found.reserved, found.on_device):
        assert level.low <= level.expected <= level.high
    assert found.allocated.high <= found.reserved.high <= found.on_device.high
