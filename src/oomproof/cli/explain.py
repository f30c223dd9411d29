"""``oomproof explain``: why didn't it fit?"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oomproof.cli.arguments import AsJson, Debug, Html, On, Pairs, Quiet, device_on, gather_settings, require_writable
from oomproof.cli.pages import write_html
from oomproof.cli.screen import at_work, show, write
from oomproof.errors import InputError

if TYPE_CHECKING:
    from oomproof.diagnosis.diagnosis import Diagnosis
    from oomproof.memory.forecast import Forecast


def explain(
    log: Annotated[
        str,
        typer.Argument(
            metavar="LOG",
            help="A log file, `-` for what is piped in, or a PyTorch memory SNAPSHOT.pickle.",
            show_default=False,
        ),
    ],
    *,
    job: Annotated[
        str,
        typer.Option(
            "--job",
            metavar="JOB",
            help="The job that was run, as for `check`: its forecast is set against the log's numbers.",
            show_default=False,
        ),
    ] = "",
    on: On = "",
    pairs: Pairs = None,
    html: Html = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Why didn't it fit? Find the cause in a log.

    Reads what PyTorch, TensorFlow, JAX, data loaders, the kernel, SLURM and Kubernetes say when memory runs out, and
    says which of the usual causes it was, with the log's own numbers, and what to do next. Logs may be of any size.

    With --job, the forecast of the job confirms or refutes it; --on says the device, if the log does not.

    Exit code 0: a diagnosis was given, be it that memory was not the reason. 1: the input cannot be read.

    \b
    Examples:
      oomproof explain train.log
      python train.py 2>&1 | oomproof explain -
      dmesg | oomproof explain - --json
      oomproof explain train.log --job train_job.py:job --on "RTX 3060" --set batch=8
      oomproof explain snapshot.pickle
    """
    if (on or pairs) and not job:
        raise InputError("--on and --set are about the job's forecast; name the job too: --job train_job.py:job")
    if html is not None:
        require_writable(html, "--html")
    forecast = _forecast(job, on, pairs or [], quiet or as_json, log) if job else None
    with _without_collector():
        found = _read(log, forecast)
        from oomproof.report import explain as reporting

        if html is not None:
            from oomproof.page.documents import explain_document

            write_html(html, explain_document(found))
        if as_json:
            from oomproof.report.as_json import text

            write(text(reporting.document(found)))
        else:
            show(reporting.report(found))


@contextmanager
def _without_collector() -> Iterator[None]:
    """Python's search for cycles is a tenth of this command's time, and finds none."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _read(log: str, forecast: Forecast | None) -> Diagnosis:
    from oomproof.api.explain import explain as diagnosed
    from oomproof.api.explain import explain_stream

    if log != "-":
        return diagnosed(Path(log), forecast=forecast)
    if sys.stdin is None:
        raise InputError("there is nothing on stdin; pipe a log in: python train.py 2>&1 | oomproof explain -")
    return explain_stream(sys.stdin.buffer, forecast, name="what is piped in")


def _forecast(job: str, on: str, pairs: list[str], quiet: bool, log: str) -> Forecast:
    import oomproof
    from oomproof.api.explain import explain as diagnosed
    from oomproof.memory.cards.devices import Device

    # What the log says comes first: a file that cannot be read should not cost the tracing of the job.
    facts = diagnosed(Path(log)).facts if log != "-" else {}
    total = facts.get("total") if facts.get("where") == "device" else None
    if on:
        device = device_on(on)
    elif total:
        device = Device(name=f"{total / 2**30:.2f} GiB", total=int(total))
    elif log == "-":
        raise InputError("--job with a piped log needs --on: the device, as in --on 'RTX 3060'")
    else:
        device = device_on("")
    with at_work(quiet) as say:
        return oomproof.check(job, device, progress=say, **gather_settings(pairs, None, None))
