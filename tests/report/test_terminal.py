"""The text report: three lines first, no line wider than the terminal, plain where colour or blocks are not wanted."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest
from rich.console import Console, RenderableType

import oomproof
from oomproof.memory.batch_spec import BatchSpec, ImageSpec
from oomproof.memory.cards.devices import Device
from oomproof.memory.epoch import Batch, Epoch
from oomproof.memory.forecast import Forecast, Hint
from oomproof.memory.settings import Settings
from oomproof.report import terminal
from oomproof.report.epoch import build_batches
from oomproof.report.verdict import describe_worst, verdict
from oomproof.sources.job import Setting


def drawn(report: RenderableType, width: int = 80, encoding: str = "utf-8", color: str | None = None) -> str:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding)
    Console(file=file, width=width, highlight=False, force_terminal=bool(color), no_color=not color).print(report)
    file.flush()
    return raw.getvalue().decode(encoding)


def test_opens_with_verdict_why_next(fits: Forecast, settings: tuple[Setting, ...]) -> None:
    lines = drawn(terminal.report(fits, settings), 160).splitlines()
    assert lines[0].rstrip() == "Verdict  fits RTX 3060 12GB: 5.84 of 11.76 GiB (at worst 6.10)"
    assert lines[1].rstrip() == (
        "For      torchvision:maskrcnn_resnet50_fpn: batch 2, image_size 800x1333, precision fp32"
    )
    assert lines[2].startswith(
        "Why      the peak is in backward of rpn.head.conv.0.0 (convolution_backward), where activ"
    )
    assert lines[3].rstrip() == "Next     5.66 GiB stay free even at worst; --sweep batch=1..16 finds the largest batch"


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("case", ["fits", "at_risk", "does_not_fit"])
def test_no_line_is_wider_than_the_terminal_and_no_word_is_broken(
    width: int, case: str, settings: tuple[Setting, ...], request: pytest.FixtureRequest
) -> None:
    text = drawn(terminal.report(request.getfixturevalue(case), settings, everything=True), width)
    assert max(len(line) for line in text.splitlines()) <= width
    for word in (
        "max_memory_allocated",
        "max_memory_reserved",
        "nvidia-smi",
        "(convolution_backward)",
        "backbone.body.layer2",
        "optimizer state",
        "Not counted",
    ):
        assert word in text


def test_says_where_memory_runs_out_and_what_to_try(does_not_fit: Forecast, settings: tuple[Setting, ...]) -> None:
    hint = Hint("batch", {"batch": 1}, 9 << 28, "equivalent", "fewer images at a time")
    text = drawn(terminal.report(replace(does_not_fit, hints=(hint,)), settings, everything=True), 120)
    assert "does not fit 4GiB: needs 5.84 GiB (at worst 6.10), has 4.00" in text
    assert "OOM at   in backward of rpn.head.conv.0.0 (convolution_backward), asking for 1.14 GiB" in text
    assert "--batch 1  saves about 2.25 GiB: fewer images at a time" in text


def test_bars_fall_back_to_ascii(fits: Forecast, settings: tuple[Setting, ...]) -> None:
    text = drawn(terminal.report(fits, settings), encoding="ascii")
    assert "###" in text
    assert "?" not in text


def test_colour_only_on_request(fits: Forecast, settings: tuple[Setting, ...]) -> None:
    assert "\x1b[" not in drawn(terminal.report(fits, settings))
    assert "\x1b[" in drawn(terminal.report(fits, settings), color="yes")


def test_a_tight_fit_does_not_contradict_itself(fits: Forecast, settings: tuple[Setting, ...]) -> None:
    shrunk = replace(fits.on_device, high=6 << 30)
    tight = replace(fits, device=Device("6.00 GiB", 6 << 30), wanted=fits.on_device.high, on_device=shrunk)
    text = drawn(terminal.report(tight, settings), 160)
    assert "fits 6.00 GiB: 5.84 of 6.00 GiB (at worst 6.00, with less workspace and cache)" in text
    assert "has to do with less workspace" in text
    assert "stay free" not in text


def test_what_fits_has_every_upper_figure_within_its_budget(fits: Forecast) -> None:
    over = replace(fits, device=Device("6.00 GiB", 6 << 30))
    assert over.shortage_at_worst is None and over.outcome == "at risk"
    assert verdict(over) == "at risk on 6.00 GiB: 5.84 of 6.00 GiB expected, 6.10 at worst"


def test_settings_as_usual_are_left_out(fits: Forecast, settings: tuple[Setting, ...]) -> None:
    text = drawn(terminal.report(fits, settings), 160)
    assert "batch 2, image_size 800x1333, precision fp32" in text
    assert "optimizer sgd" not in text
    other = replace(fits, settings=fits.settings.with_values({"optimizer": "adamw"}))
    assert "precision fp32, optimizer adamw" in drawn(terminal.report(other, settings), 160)


def test_the_usual_report_is_half_as_long(fits: Forecast, settings: tuple[Setting, ...]) -> None:
    notes = ("without memory growth TensorFlow takes 6.16 GiB. nvidia-smi then shows that, whatever the model needs",)
    noted = replace(fits, notes=notes, not_counted=("other processes", "validation"))
    short, whole = (drawn(terminal.report(noted, settings, everything=each), 100) for each in (False, True))
    assert len(short.splitlines()) <= 0.6 * len(whole.splitlines())
    assert "The rest of the report: --all" in short and "--all" not in whole
    assert "  - without memory growth TensorFlow takes 6.16 GiB\n" in re.sub(" +\n", "\n", short)
    assert "whatever the model" in whole
    for text in (short, whole):
        assert text.count("Not counted") == 1
        assert "Not counted  other processes; validation" in text


def test_what_nobody_has_said_stands_under_the_verdict(fits: Forecast) -> None:
    settings = (
        Setting("batch", 2, "", basis="assumed"),
        Setting("image_size", (800, 1333), "", basis="the model's own"),
        Setting("boxes", 93, "", basis="assumed"),
        Setting("workers", 0, ""),
    )
    values = Settings({"batch": 2, "image_size": (800, 1333), "boxes": 93, "workers": 0}, fits.settings._roles)
    second = drawn(terminal.report(replace(fits, settings=values), settings), 160).splitlines()[1]
    assert "batch 2 (assumed), image_size 800x1333 (the model's own), boxes 93 (assumed)" in second
    assert "workers" not in second
    said = drawn(terminal.report(replace(fits, settings=values), settings, named=("batch", "boxes")), 160)
    assert "batch 2, image_size 800x1333 (the model's own)" in said.splitlines()[1]
    assert "boxes" not in said.splitlines()[1]


def test_names_what_others_hold(fits: Forecast, settings: tuple[Setting, ...]) -> None:
    device = Device("RTX 3060 12GB", 12 << 30, held=3 << 30, held_by=("Xorg", "chrome"))
    text = drawn(terminal.report(replace(fits, device=device), settings), 120)
    assert "5.84 of 9.00 GiB" in text
    assert "3.00 GiB of it held by Xorg, chrome" in text


def test_an_empty_step_still_has_a_report(fits: Forecast) -> None:
    nothing = {"kinds": {}, "owners": (), "phases": {}, "not_counted": (), "phase": "", "owner": "", "op": ""}
    empty = replace(fits, **nothing, settings=Settings())
    text = drawn(terminal.report(empty, ()))
    assert "the peak is in the step" in text
    assert "Not counted" not in text
    assert "Modules that hold" not in text


def test_markup_in_names_is_text(fits: Forecast, settings: tuple[Setting, ...]) -> None:
    file = io.StringIO()
    odd = replace(fits, owners=(("blocks[0].[red]conv", 5 << 20),), job="[bold]x[/]", not_counted=("[a] list",))
    Console(file=file, width=80, highlight=False, markup=False).print(terminal.report(odd, settings))
    assert "blocks[0].[red]conv" in file.getvalue()
    assert "[bold]x[/]" in file.getvalue()
    assert "[a] list" in file.getvalue()


def test_objects_of_a_dataset_are_not_assumed(fits: Forecast) -> None:
    known = Setting("boxes", 93, "objects", basis="assumed")
    values = Settings({**fits.settings, "boxes": 93}, {**fits.settings.roles, "boxes": "boxes"})
    image = ImageSpec(480, 640, 7, "a.jpg")
    batch = Batch(BatchSpec((image,)), (480, 640), fits.allocated, fits.on_device, "fits")
    epoch = Epoch("a.json", 1, 1, "as stored", True, batch, batch, 0.0, False, (), 1, 0)
    assert describe_worst(epoch) == "the worst batch is 1 image of 480x640 with 7 objects, a.jpg"
    padded = replace(epoch, padded_objects=True)
    assert describe_worst(padded) == "the worst batch is 1 image of 480x640, with ground truth padded to 7 objects each"
    for found, said in ((None, True), (epoch, False)):
        text = drawn(terminal.report(replace(fits, settings=values, epoch=found), (known,)))
        assert ("boxes 93 (assumed)" in " ".join(text.split())) is said


def test_the_most_crowded_images_of_a_batch_are_those_that_are_named(fits: Forecast) -> None:
    images = tuple(ImageSpec(480, 640, count, f"{count}.jpg") for count in range(1, 21))  # as steps have them
    batch = Batch(BatchSpec(images), (480, 640), fits.allocated, fits.on_device, "fits")
    worst = replace(batch, outcome="does not fit")
    epoch = Epoch("a.json", 20, 1, "as stored", True, worst, batch, 0.1, False, (), 1, 0)
    told = drawn(build_batches(epoch))
    assert "20.jpg" in told and " 5.jpg" in told and " 4.jpg" not in told and "and 4 more" in told
    log = (
        "step 54000: loss 0.5\n"
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 8.00 GiB"
    )
    cause = oomproof.explain(log, forecast=replace(fits, epoch=epoch)).causes[0]
    assert "20.jpg (20 objects), 19.jpg (19 objects), 18.jpg (18 objects)" in f"{cause.verdict} {cause.why}"
