"""``oomproof measure``: the forecast of a job against what two real steps take."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from oomproof.cli.arguments import Batch, Debug, ImageSize, Pairs, Precision, Quiet, gather_settings
from oomproof.cli.screen import at_work, show, tell, write
from oomproof.errors import InputError

if TYPE_CHECKING:
    from oomproof.api.measure import Measurement


def measure(
    job: Annotated[
        list[str] | None,
        typer.Argument(metavar="JOB", help="torchvision:NAME, a Detectron2 config, or FILE.py:FUNCTION."),
    ] = None,
    *,
    on: Annotated[
        str, typer.Option("--on", metavar="this", help="This machine: nothing else can be measured.")
    ] = "this",
    batch: Batch = None,
    image_size: ImageSize = None,
    precision: Precision = None,
    pairs: Pairs = None,
    row: Annotated[
        bool, typer.Option("--row", help="One line of CSV: job, device, forecast and real bytes. For docs/accuracy.md.")
    ] = False,
    keep: Annotated[
        bool,
        typer.Option(
            "--keep", help="Keep this GPU's context and library workspace for forecasts --on this (see --kept)."
        ),
    ] = False,
    kept: Annotated[bool, typer.Option("--kept", help="Show what was kept, and where; measure nothing.")] = False,
    forget: Annotated[bool, typer.Option("--forget", help="Remove what was kept; measure nothing.")] = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Forecast against reality: run two real steps of a job here.

    On the GPU that PyTorch has (unproven), else on the CPU, whose kernels (AVX2) the forecast then assumes. PyTorch
    jobs only: torchvision:NAME, Detectron2 configs (their blueprint, or Detectron2 itself with --set real=true), and
    FILE.py:FUNCTION that makes a TorchJob. Nothing is kept without --keep.

    Exit code 0: it was measured. 1: it does not fit, or bad input.

    \b
    Examples:
      oomproof measure torchvision:resnet18 --batch 2 --on this
      oomproof measure train_job.py:job --row
      oomproof measure train_job.py:job --keep
      oomproof measure --kept
    """
    if kept or forget:
        _show_constants() if kept else _forget()
        return
    if not job:
        raise InputError("JOB is missing: name what to measure, such as torchvision:resnet18")
    if len(job) > 1:
        raise InputError(
            "a command cannot be measured, since its steps cannot be run apart: `oomproof check -- COMMAND` forecasts "
            f"it, `oomproof watch PID` reads it while it runs; got {' '.join(job)}"
        )
    if on != "this":
        raise InputError(f"--on must be `this`: only this machine can run the job; got {on!r}; see oomproof check")
    # memory/scratch/cpu.py knows the copies that oneDNN's AVX2 kernels make; read when PyTorch is loaded.
    os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX2")
    os.environ.setdefault("KINETO_LOG_LEVEL", "5")  # its profiler tells of a GPU that it does not find
    given = gather_settings(pairs or (), batch, image_size, precision=precision)
    with at_work(quiet or row) as say:
        from oomproof.api.measure import keep_measurement, refuse_without_gpu
        from oomproof.api.measure import measure as measured

        if keep:
            refuse_without_gpu()
        found = measured(job[0], progress=say, **given)
    if row:
        write(_row(found) + "\n")
    else:
        from oomproof.report.measure import report

        show(report(found.forecast, found.real, found.device, found.error))
    if keep:
        place = keep_measurement(found)
        tell(f"kept for forecasts --on this in {place}; `oomproof measure --forget` removes it")


def _show_constants() -> None:
    from oomproof.memory.cards.kept_constants import constants_file, read_constants

    entries = read_constants()
    if not entries:
        write(f"nothing is kept ({constants_file()} does not exist)\n")
        return
    write(f"{constants_file()}\n")
    for name, each in entries.items():
        write(
            f"{name}: context {each.context / 2**20:.0f} MiB, library workspace {each.workspace / 2**20:.1f} MiB "
            f"(measured with {each.job}, {each.versions})\n"
        )


def _forget() -> None:
    from oomproof.memory.cards.kept_constants import forget_constants

    removed = forget_constants()
    write(f"removed {removed}\n" if removed else "nothing was kept\n")


def _row(found: Measurement) -> str:
    forecast, real = found.forecast, found.real
    settings = " ".join(f"{name}={value}" for name, value in forecast.settings.items())
    cells = [
        forecast.job, found.device, settings, forecast.allocated.expected, real.allocated,
        forecast.reserved.expected if real.reserved is not None else "", real.reserved or "", real.on_device or "",
    ]  # fmt: skip
    return ",".join(f'"{cell}"' if "," in str(cell) else str(cell) for cell in cells)
