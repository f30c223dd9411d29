"""A plan as text: three lines first, then what changes and what it was chosen over; readable at every width."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace

import pytest
from forecasts import SETTINGS, mask_rcnn
from plans import DEVICE, GIB, as_it_is, brought_to_fit, forecast, too_large
from rich.console import Console, RenderableType

from oomproof.memory.batch_spec import BatchSpec, ImageSpec
from oomproof.memory.epoch import Batch, Epoch
from oomproof.memory.settings import Settings
from oomproof.plan.plan import Alternative, Change, Plan, Point
from oomproof.report import changes, plan
from oomproof.report.frontier import MOST, Frontier, thin_points
from oomproof.report.plan_verdict import next_step, verdict, why
from oomproof.sources.job import Knob, Option, Setting


def drawn(report: RenderableType, width: int = 80, encoding: str = "utf-8") -> str:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding)
    Console(file=file, width=width, highlight=False, markup=False, no_color=True).print(report)
    file.flush()
    return raw.getvalue().decode(encoding)


def section(text: str, title: str) -> str:
    """The lines below a heading, up to the next."""
    return text.split(f"\n{title}\n")[1].split("\n\n", maxsplit=1)[0]


def test_opens_with_verdict_why_next() -> None:
    lines = [line.rstrip() for line in drawn(plan.report(brought_to_fit(), SETTINGS), 200).splitlines()]
    assert lines[0] == (
        "Verdict  fits RTX 3060 12GB with 2 changes: 9.81 of 11.76 GiB (at worst 10.90); takes 4 % more time per image"
    )
    assert lines[1].startswith(
        "For      torchvision:maskrcnn_resnet50_fpn: batch 16, accumulate 1, image_size 800x1333"
    )
    assert lines[2] == (
        "Why      as it is it needs 24.30 GiB (at worst 26.10); "
        "batch 4 x 4 frees 13.10 GiB and checkpoint 12 modules frees 2.40 GiB"
    )
    assert lines[3].startswith("Next     0.86 GiB stay free even at worst; add --write ")


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("make", [brought_to_fit, as_it_is, too_large])
def test_no_line_is_wider_than_the_terminal_and_nothing_is_cut(make: Callable[[], Plan], width: int) -> None:
    text = drawn(plan.report(make(), SETTINGS, everything=True), width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    words = ["RTX 3060 12GB" if make is not too_large else "3GiB", "host RAM", "Not counted"]
    if make is not as_it_is:
        words += ["equivalent", "identical", "13.10", "+12 %", "-7 %", "24.30", "26.10", "Turned down", "as it is"]
        words += [f"backbone.body.layer{layer}.{{0,1,2}}" for layer in (1, 2, 3, 4)]
    assert not [word for word in words if word not in text]


def test_changes_come_in_the_plans_order_with_their_sum() -> None:
    rows = section(drawn(plan.report(brought_to_fit(), SETTINGS), 120), "Changes, least harmful first").splitlines()
    figures = [row.split() for row in rows if " %" in row]
    assert [row[0] for row in figures] == ["checkpoint", "batch", "together"]
    assert figures[0][-4:] == ["identical", "2.40", "+12", "%"]
    assert figures[2][-4:] == ["equivalent", "14.49", "+4", "%"]
    assert rows[2].strip().startswith("12 blocks are computed again in backward; the least recompute")


def test_before_and_after() -> None:
    rows = section(
        drawn(plan.report(brought_to_fit(), SETTINGS, everything=True)), "Before and after, GiB"
    ).splitlines()
    assert next(row for row in rows if "device" in row).split() == ["device", "24.30", "26.10", "9.81", "10.90"]
    assert next(row for row in rows if "peak after" in row).split()[2:6] == [
        "in",
        "backward",
        "of",
        "rpn.head.conv.0.0",
    ]


def test_where_no_knob_is_enough_nothing_is_offered() -> None:
    stuck = replace(too_large(), needs=("no knob that may be turned is enough: it needs about 3.50 GiB at least",))
    sentence, offered = next_step(stuck, False)
    assert sentence == (
        "nothing fits, whatever is allowed; no knob that may be turned is enough: it needs about 3.50 GiB at least"
    )
    assert offered == ()


def test_objects_of_a_dataset_are_not_assumed() -> None:
    made = brought_to_fit()
    values = Settings({**made.before.settings, "boxes": 93}, {**made.before.settings.roles, "boxes": "boxes"})
    before = replace(made.before, settings=values)
    batch = Batch(BatchSpec((ImageSpec(480, 640, 7, "a.jpg"),)), (480, 640), before.allocated, before.on_device, "fits")
    epoch = Epoch("a.json", 1, 1, "as stored", True, batch, batch, 0.0, False, (), 1, 0)
    known = (*SETTINGS, Setting("boxes", 93, "objects", basis="assumed"))
    for found, said in ((None, True), (epoch, False)):
        text = drawn(plan.report(replace(made, before=before, after=replace(made.after, epoch=found)), known), 200)
        assert ("boxes 93 (assumed)" in text) is said


def test_a_batch_under_another_name_is_a_batch() -> None:
    def renamed(settings: Settings) -> Settings:
        values = {("batch_size" if name == "batch" else name): value for name, value in settings.items()}
        return Settings(values, {"batch": "batch_size"})

    made = brought_to_fit()
    before = replace(made.before, settings=renamed(made.before.settings))
    text = drawn(plan.report(replace(made, settings=renamed(made.settings), before=before), SETTINGS), 120)
    assert "the effective batch stays 16 = 4 images x 4 micro-batches" in text
    assert "batch_size 16" in text.split("\nDevice")[0]


def test_the_learning_rate_rule_is_told() -> None:
    text = drawn(plan.report(brought_to_fit(), SETTINGS), 120)
    assert "the effective batch stays 16 = 4 images x 4 micro-batches: learning rate and schedule stay" in text
    smaller = replace(brought_to_fit(), settings=brought_to_fit().settings.with_values({"accumulate": 2}))
    assert "the effective batch goes from 16 to 8 = 4 images x 2 micro-batches: the learning rate has to" in drawn(
        plan.report(smaller, SETTINGS), 120
    )
    thirteen = replace(brought_to_fit().before, settings=brought_to_fit().before.settings.with_values({"batch": 13}))
    assert "the effective batch stays 13 in 4 micro-batches of 4 images at most: learning rate and schedule" in drawn(
        plan.report(replace(brought_to_fit(), before=thirteen), SETTINGS), 120
    )
    silent = replace(brought_to_fit(), settings=Settings({"size": 3}))
    assert "effective batch" not in drawn(plan.report(silent, SETTINGS))


def test_only_promises_that_are_made_are_explained() -> None:
    text = drawn(plan.report(brought_to_fit(), SETTINGS, everything=True), 120)
    assert "identical: the same gradients" in text
    assert "different:" not in text


def test_what_fits_needs_no_change() -> None:
    text = drawn(plan.report(as_it_is(), SETTINGS), 120)
    assert text.startswith(
        "Verdict  fits RTX 3060 12GB as it is: 4.00 of 11.76 GiB (at worst 5.00); no change is needed"
    )
    assert "train it as it is; 6.76 GiB stay free even at worst" in text
    assert "Changes" not in text
    assert "effective batch" not in text


def test_nothing_fits_shows_the_nearest_miss_and_what_to_allow() -> None:
    text = drawn(plan.report(too_large(), SETTINGS), 120)
    assert text.startswith("Verdict  does not fit 3GiB even with 2 changes: needs 4.10 GiB (at worst 4.60), has 3.00")
    assert "even so memory runs out in backward of rpn.head.conv.0.0" in text
    assert "--allow image_size: 480x800 would need 2.80 GiB at worst" in text
    assert "Changes of the nearest miss" in text
    assert "--write" not in text


def test_nothing_fits_and_nothing_may_change() -> None:
    stuck = replace(too_large(), changes=(), needs=(), after=too_large().before)
    assert verdict(stuck).startswith("does not fit 3GiB, and nothing that may change helps: needs 24.30 GiB")
    assert "a larger GPU" in next_step(stuck, writing=False)[0]


def test_at_risk_is_no_fit() -> None:
    risky = replace(brought_to_fit(), after=forecast(11 * GIB, 12 * GIB, {"batch": 4}))
    assert verdict(risky) == "at risk on RTX 3060 12GB even with 2 changes: 11.00 of 11.76 GiB expected, 12.00 at worst"


def test_a_stopped_search_is_marked() -> None:
    stopped = replace(brought_to_fit(), interrupted=True)
    assert verdict(stopped).startswith("stopped early; the best so far fits RTX 3060 12GB with 2 changes")
    assert "may find something better" in next_step(stopped, writing=False)[0]
    assert verdict(replace(too_large(), interrupted=True)).startswith("stopped early; the nearest so far does not fit")


def test_written_plans_do_not_ask_for_write() -> None:
    assert "--write" in next_step(brought_to_fit(), writing=False)[0]
    assert "--write" not in next_step(brought_to_fit(), writing=True)[0]


def test_why_names_no_change_that_frees_next_to_nothing() -> None:
    tiny = Change("zero_grad", "keep", "before_forward", "identical", "", 1 << 20, 1.0, {})
    fits = brought_to_fit()
    assert "zero_grad" not in why(replace(fits, changes=(tiny, *fits.changes)))


def test_the_frontier_marks_the_choice_and_the_budget() -> None:
    rows = drawn(Frontier(brought_to_fit().frontier, DEVICE.budget), 100).splitlines()
    assert [row.startswith("►") for row in rows] == [False, False, False, True, False, False]
    at = {row.index("│") for row in rows[1:]}
    assert len(at) == 1
    for row, point in zip(rows[1:], brought_to_fit().frontier, strict=True):
        beyond = row[at.copy().pop() + 1 :].lstrip()
        assert (beyond[0] in "█▉▊▋▌▍▎▏") == (point.device > DEVICE.budget), row


def test_the_frontier_in_ascii() -> None:
    text = drawn(Frontier(brought_to_fit().frontier, DEVICE.budget), encoding="ascii")
    assert "*" in text and "|" in text and "###" in text
    assert "?" not in text


def test_a_bar_that_leaves_the_scale_says_so() -> None:
    points = (Point(100 * GIB, 1.0, "identical", ""), Point(7 * GIB, 1.2, "identical", "batch 1 x 16", chosen=True))
    first, second = drawn(Frontier(points, 8 * GIB), 100).splitlines()[1:]
    assert ">" in first and ">" not in second
    assert second.count("█") >= 8


def test_a_long_frontier_keeps_its_ends_and_the_choice() -> None:
    for chosen in range(50):
        points = [Point(50 - n, 1 + n / 10, "identical", str(n), chosen=n == chosen) for n in range(50)]
        shown = thin_points(points)
        assert len(shown) == MOST
        assert shown[0] is points[0] and shown[-1] is points[-1] and points[chosen] in shown
        assert shown == sorted(shown, key=lambda point: point.time)


def test_many_alternatives_are_cut_and_said() -> None:
    many = [Alternative(f"batch {n}", "identical", GIB, 1.0, "slower") for n in range(20)]
    text = drawn(changes.alternatives(many))
    assert "batch 7" in text and "batch 8" not in text
    assert "12 more: see --json" in text


def test_knobs_are_listed_with_values_promise_and_why() -> None:
    knob = Knob("image_size", (Option((800, 1333), {}), Option((640, 1088), {})), "different", "smaller objects vanish")
    open_ended = Knob("checkpoint", (Option("none", {}),), "identical", "computed again in backward")
    text = drawn(changes.knobs([knob, open_ended]))
    assert "checkpoint  none -> worked out by the search" in text
    assert "image_size  800x1333 -> 640x1088" in text
    assert "different" in text and "smaller objects vanish" in text


def test_markup_in_names_is_text() -> None:
    odd = Change("[red]knob", "[a]", "[b]", "identical", "[why]", GIB, 1.0, {})
    text = drawn(plan.report(replace(brought_to_fit(), changes=(odd,)), SETTINGS), 120)
    assert "[red]knob [a] -> [b]" in text and "[why]" in text


def test_a_forecast_that_gives_cache_back_keeps_its_words() -> None:
    """The verdict of a plan is built on that of its forecast, in all its forms."""
    small = replace(DEVICE, name="6GiB", total=6 * GIB)
    roomy = mask_rcnn(12042 << 20)
    tight = replace(roomy, device=small, wanted=roomy.on_device.high, on_device=replace(roomy.on_device, high=6 * GIB))
    plan = replace(brought_to_fit(), device=small, after=tight)
    assert next_step(plan, writing=False)[0].startswith(
        "it is tight, so keep other programs off the device; add --write"
    )
    assert next_step(replace(plan, changes=()), writing=False)[0].endswith("so keep other programs off the device")
    assert verdict(plan) == (
        "fits 6GiB with 2 changes: 5.84 of 6.00 GiB (at worst 6.00, with less workspace and cache); "
        "takes 4 % more time per image"
    )


def test_an_estimate_of_the_job_as_it_is_is_called_one() -> None:
    text = drawn(plan.report(replace(brought_to_fit(), before_estimated=True), SETTINGS, everything=True), 200)
    assert "as it is it needs about 24.30 GiB" in text
    assert "before, about" in text
    assert "what it needs as it is and other rows are estimated from traces of few images" in text
    traced = drawn(plan.report(brought_to_fit(), SETTINGS, everything=True), 200)
    assert "other rows are estimated from traces under other settings" in traced and "few images" not in traced


def test_the_usual_report_is_shorter() -> None:
    short, whole = (drawn(plan.report(brought_to_fit(), SETTINGS, everything=each), 100) for each in (False, True))
    assert len(short.splitlines()) <= 0.7 * len(whole.splitlines())
    assert "Memory against time" not in short and "Memory against time" in whole
    assert short.count("Not counted") == whole.count("Not counted") == 1
