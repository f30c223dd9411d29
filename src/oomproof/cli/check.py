"""``oomproof check``: will the job fit?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oomproof.cli.arguments import (
    AsJson,
    Backend,
    Batch,
    ConfigFile,
    Debug,
    From,
    Gpus,
    ImageSize,
    JobText,
    On,
    Overrides,
    Pairs,
    Precision,
    Quiet,
    Ram,
    device_on,
    given_settings,
    granted,
    sweep_values,
    with_keys,
    writable,
)
from oomproof.cli.screen import at_work, show, write
from oomproof.errors import InputError

if TYPE_CHECKING:
    from oomproof.memory.cards.devices import Device
    from oomproof.memory.forecast import Forecast
    from oomproof.report.sweep import Sweep
    from oomproof.sources.job import Job, Progress

FITS, DOES_NOT_FIT = 0, 2


def check(
    job: JobText,
    overrides: Overrides = None,
    *,
    config_file: ConfigFile = "",
    on: On = "",
    batch: Batch = None,
    image_size: ImageSize = None,
    gpus: Gpus = None,
    precision: Precision = None,
    backend: Backend = None,
    pairs: Pairs = None,
    base: From = None,
    ram: Ram = None,
    sweep: Annotated[
        str,
        typer.Option(
            "--sweep",
            metavar="NAME=VALUES",
            help="One row a value: batch=1,2,4 or batch=1..16. A range of up to 16 integers is tried whole, a longer "
            "one by doubling (1..48: 1, 2, 4, 8, 16, 32, 48). At most 64 values.",
            show_default=False,
        ),
    ] = "",
    list_settings: Annotated[
        bool, typer.Option("--settings", help="List the settings the job has, with defaults, and exit.")
    ] = False,
    as_json: AsJson = False,
    save: Annotated[
        Path | None,
        typer.Option("--save", metavar="FILE.timeline", help="Keep the traced step; check it again in a second."),
    ] = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Will it fit? Forecast a training step's GPU memory.

    No GPU is needed and no step is run: JOB is traced with fake tensors, and what it would allocate is replayed
    through PyTorch's caching allocator. The answer opens with three lines: verdict, why, next.

    Exit code 0: it fits (in a sweep: some value does), and the host RAM too where --ram says how much there is. 2: it
    does not, or is at risk. 1: bad input or a failure.

    \b
    Examples:
      oomproof check torchvision:maskrcnn_resnet50_fpn --batch 2 --on "RTX 3060"
      oomproof check train_job.py:job --on 8GiB --set precision=fp16 --json
      oomproof check torchvision:retinanet_resnet50_fpn --sweep batch=1..16 --on T4
      oomproof check mask_rcnn_R_50_FPN_3x.yaml --on "RTX 3060" SOLVER.IMS_PER_BATCH 8
      oomproof check torchvision:fcos_resnet50_fpn --on T4 --save step.timeline
      oomproof check step.timeline --on "RTX 4090"
      oomproof check train_job.py:job --on 8GiB --ram 16GiB --set workers=8
    """
    given = given_settings(pairs or (), batch, image_size, base, gpus, precision=precision, backend=backend)
    keys = with_keys(overrides, given)
    swept = sweep_values(sweep) if sweep else None
    if save is not None:
        if swept is not None:
            raise InputError("--save keeps one step, but --sweep makes many: leave one of them out")
        writable(save, "--save")
    if list_settings:
        _print_settings(job, keys, given.get("backend", ""), config_file, as_json=as_json)
        return
    device, host = device_on(on), granted(ram)
    with at_work(quiet or as_json) as say:
        say(f"opening {job}")
        opened = open_job(job, keys, given.get("backend", ""), config_file)
        answer = _sweep(opened, device, given, swept, say) if swept else _one(opened, device, given, save, say)
    fits = _print(_within(answer, host), opened, as_json)
    raise typer.Exit(FITS if fits else DOES_NOT_FIT)


def open_job(text: str, overrides: Sequence[str], backend: str, config_file: str = "") -> Job:
    from oomproof import sources

    return sources.open_job(text, overrides, backend, config_file)


def _one(job: Job, device: Device, given: Mapping[str, Any], save: Path | None, say: Progress) -> Forecast:
    from oomproof.api import check as forecasting
    from oomproof.memory.files import timeline_file

    settings = forecasting.resolve(job, given)
    timeline = forecasting.trace(job, settings, say, device)
    if save is not None:
        timeline_file.save(timeline, save)
    say("replaying the allocator")
    return forecasting.forecast(timeline, device, settings)


def _sweep(
    job: Job, device: Device, given: Mapping[str, Any], swept: tuple[str, Sequence[str]], say: Progress
) -> Sweep:
    from oomproof.api import check as forecasting
    from oomproof.memory.runtime import Runtime
    from oomproof.report.sweep import Sweep

    name, values = swept
    # Every value is checked before the first trace, which may take a minute.
    runs = [forecasting.resolve(job, {**given, name: value}) for value in values]
    retrace = name not in vars(Runtime())
    rows, timeline = [], None
    for count, settings in enumerate(runs, 1):
        if timeline is None or retrace:
            prefixed = _prefixed(say, f"{name} {count} of {len(runs)}: ")
            timeline = forecasting.trace(job, settings, prefixed, device)
        rows.append((settings[name], forecasting.forecast(timeline, device, settings)))
    return Sweep(name, tuple(rows))


def _within(answer: Forecast | Sweep, ram: int | None) -> Forecast | Sweep:
    """Held against a budget of host RAM."""
    from oomproof.memory.forecast import Forecast

    if isinstance(answer, Forecast):
        return replace(answer, ram=ram)
    return replace(answer, rows=tuple((value, replace(row, ram=ram)) for value, row in answer.rows))


def _prefixed(say: Progress, prefix: str) -> Progress:
    return lambda doing: say(prefix + doing)


def _print(answer: Forecast | Sweep, job: Job, as_json: bool) -> bool:
    """Whether it fits (in a sweep: whether any value does)."""
    from oomproof.api.check import settings_of
    from oomproof.memory.forecast import Forecast

    if as_json:
        from oomproof.report import as_json as document

        write(document.text(document.forecast(answer) if isinstance(answer, Forecast) else document.sweep(answer)))
    elif isinstance(answer, Forecast):
        from oomproof.report import terminal

        show(terminal.report(answer, settings_of(job)))
    else:
        from oomproof.report import sweep

        show(sweep.report(answer))
    return answer.fits if isinstance(answer, Forecast) else bool(answer.fitting)


def _print_settings(text: str, overrides: Sequence[str], backend: str, config_file: str, *, as_json: bool) -> None:
    from oomproof.api.check import settings_of
    from oomproof.report import as_json as document
    from oomproof.report import settings as listing

    with at_work(quiet=True):
        settings = settings_of(open_job(text, overrides, backend, config_file))
    if as_json:
        write(document.text(document.settings(settings)))
    else:
        show(listing.report(settings))
