"""``oomproof check``: will the job fit?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oomproof.cli.arguments import (
    AsJson,
    Backend,
    Batch,
    ConfigFile,
    Debug,
    Everything,
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
    check_names,
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
    from oomproof.memory.forecast import Forecast
    from oomproof.memory.sweep import Sweep
    from oomproof.sources.job import Job

FITS, DOES_NOT_FIT = 0, 2
TAKEN = {"job", "on", "name", "values", "ram", "save", "progress"}
"""arguments of oomproof.check and sweep, which no setting can be named after"""


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
    everything: Everything = False,
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
    through PyTorch's caching allocator. The answer opens with its verdict, what that is for, why, and what to do next.

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
        _print_settings(job, keys, given, config_file, as_json=as_json)
        return
    check_names(given, TAKEN, "oomproof.check")
    device, host = device_on(on), granted(ram)
    with at_work(quiet or as_json) as say:
        import oomproof
        from oomproof import sources

        say(f"opening {job}")
        opened = sources.open_job(job, keys, given, config_file)
        answer: Forecast | Sweep
        if swept:
            name, values = swept
            answer = oomproof.sweep(opened, device, name, values, ram=host, progress=say, **given)
        else:
            answer = oomproof.check(opened, device, ram=host, save=save, progress=say, **given)
    fits = _print(answer, opened, given, everything=everything, as_json=as_json)
    raise typer.Exit(FITS if fits else DOES_NOT_FIT)


def _print(answer: Forecast | Sweep, job: Job, given: Mapping[str, Any], *, everything: bool, as_json: bool) -> bool:
    """Whether it fits (in a sweep: whether any value does)."""
    from oomproof.memory.forecast import Forecast
    from oomproof.sources.settings import settings_of

    if as_json:
        from oomproof.report import as_json as document

        write(document.text(document.forecast(answer) if isinstance(answer, Forecast) else document.sweep(answer)))
    elif isinstance(answer, Forecast):
        from oomproof.report import terminal

        show(terminal.report(answer, settings_of(job), named=given, everything=everything))
    else:
        from oomproof.report import sweep

        show(sweep.report(answer))
    return answer.fits if isinstance(answer, Forecast) else bool(answer.fitting)


def _print_settings(
    text: str, pairs: Sequence[str], given: Mapping[str, Any], config_file: str, *, as_json: bool
) -> None:
    from oomproof import sources
    from oomproof.report import as_json as document
    from oomproof.report import settings as listing
    from oomproof.sources.settings import settings_of

    with at_work(quiet=True):
        settings = settings_of(sources.open_job(text, pairs, given, config_file))
    if as_json:
        write(document.text(document.settings(settings)))
    else:
        show(listing.report(settings))
