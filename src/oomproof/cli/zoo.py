"""``oomproof zoo``: published models, and which of them a device can train."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oomproof.cli.arguments import AsJson, Debug, Quiet, parse_promise
from oomproof.cli.screen import at_long_work, show, write
from oomproof.errors import InputError, JobError

if TYPE_CHECKING:
    from oomproof.memory.cards.devices import Device
    from oomproof.report.zoo import ZooRow
    from oomproof.sources.zoo import Published

FITS, NOTHING_FITS, INTERRUPTED = 0, 2, 130
TASKS = ("all", "detection", "segmentation")

Say = Callable[[str, float], None]


def zoo(
    text: Annotated[
        str, typer.Argument(metavar="FILTER", help="Only models whose name contains it: fasterrcnn, mobilenet.")
    ] = "",
    *,
    on: Annotated[
        str,
        typer.Option(
            "--on",
            metavar="DEVICE",
            help='Say for each model whether this device trains it: "RTX 3060", 8GiB, or `this` machine\'s GPU.',
            show_default=False,
        ),
    ] = "",
    task: Annotated[str, typer.Option("--task", metavar="TASK", help="all, detection or segmentation.")] = "all",
    batch: Annotated[
        str | None,
        typer.Option("--batch", metavar="N", help="Images a step.  [default: as one GPU of the published training]"),
    ] = None,
    keep: Annotated[
        str,
        typer.Option(
            "--keep",
            metavar="PROMISE",
            help="What changes to make a model fit have to keep: identical (the same gradients) or equivalent.",
        ),
    ] = "equivalent",
    as_json: AsJson = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Which published models can this card train? The best first.

    Lists torchvision's and Detectron2's detection and segmentation models with the accuracy they were published with
    and the source of it. With --on, each is forecast as one GPU of its published training; where that does not fit,
    the changes that make it fit are looked for, as `oomproof fit` does. No GPU is needed, nothing is downloaded, and
    Detectron2 need not be installed.

    Exit code 0: listed, or some model fits. 2: none does. 1: bad input or a failure. 130: interrupted, after what was
    found by then was shown.

    \b
    Examples:
      oomproof zoo
      oomproof zoo fasterrcnn --on "RTX 3060"
      oomproof zoo COCO-InstanceSegmentation --on 8GiB
      oomproof zoo --task segmentation --on 8GiB --batch 8 --json
    """
    keep = parse_promise(keep)
    if task not in TASKS:
        raise InputError(f"--task must be one of {', '.join(TASKS)}; got {task!r}")
    if not on and batch is not None:
        raise InputError("--batch asks about training on a device: say which one with --on, for example --on 8GiB")
    entries = _entries(text, task)
    if not on:
        _print_listing(entries, as_json)
        return
    from oomproof.memory.cards.devices import find_device

    device, rows, stopped = find_device(on), [], False
    with at_long_work(quiet or as_json) as say:
        try:
            for row in _survey(entries, device, {} if batch is None else {"batch": batch}, keep, say):
                rows.append(row)
                stopped = row.plan is not None and row.plan.interrupted
                if stopped:
                    break
        except KeyboardInterrupt:
            stopped = True
    _print(rows, device, as_json)
    raise typer.Exit(INTERRUPTED if stopped else FITS if any(row.fits for row in rows) else NOTHING_FITS)


def _entries(text: str, task: str) -> Sequence[Published]:
    from oomproof.sources.zoo import zoo as published

    words = text.casefold().split()
    found = [entry for entry in published(task) if all(word in entry.job.casefold() for word in words)]
    if not found:
        raise InputError(f"no model of the zoo matches {text!r}; `oomproof zoo` lists them all")
    return found


def _survey(
    entries: Sequence[Published], device: Device, given: Mapping[str, Any], keep: str, say: Say
) -> Iterator[ZooRow]:
    from oomproof.report.zoo import ZooRow

    for done, entry in enumerate(entries):
        prefix = f"{done + 1} of {len(entries)}: {entry.job}"
        say(prefix, done / len(entries))
        try:
            yield _row(entry, device, given, keep, _part(say, prefix, done, len(entries)))
        except JobError as error:  # a model that cannot be trained so, such as BatchNorm on a single value
            yield ZooRow(entry, problem=str(error))
        gc.collect()  # one model at a time: a traced step leaves cycles behind


def _row(entry: Published, device: Device, given: Mapping[str, Any], keep: str, say: Say) -> ZooRow:
    import oomproof
    from oomproof import sources
    from oomproof.report.zoo import ZooRow

    job, given = sources.open_job(entry.job), given or entry.settings
    forecast = oomproof.check(job, device, **given)
    if forecast.fits:
        return ZooRow(entry, forecast)
    return ZooRow(entry, forecast, oomproof.fit(job, device, keep=keep, progress=say, **given))


def _part(say: Say, prefix: str, done: int, count: int) -> Say:
    """Progress of one model as a part of all."""
    return lambda doing, part: say(f"{prefix}: {doing}", (done + part) / count)


def _print_listing(entries: Sequence[Published], as_json: bool) -> None:
    from oomproof.report import zoo as report

    if as_json:
        from oomproof.report.as_json import text

        write(text(report.document([report.ZooRow(entry) for entry in entries])))
    else:
        show(report.build_listing(entries))


def _print(rows: Sequence[ZooRow], device: Device, as_json: bool) -> None:
    from oomproof.report import zoo as report

    if as_json:
        from oomproof.report.as_json import text

        write(text(report.document(rows)))
    elif rows:
        show(report.survey(rows, device.name))
