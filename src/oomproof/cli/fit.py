"""``oomproof fit``: make the job fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from oomproof.cli.arguments import (
    KEY,
    AsJson,
    Backend,
    Batch,
    Beside,
    ConfigFile,
    Data,
    Everything,
    From,
    Gpus,
    Grouping,
    Html,
    ImageFolder,
    ImageSize,
    JobText,
    On,
    Overrides,
    Pairs,
    Precision,
    Quiet,
    Ram,
    Records,
    Shm,
    Split,
    check_names,
    dataset_at,
    device_on,
    gather_settings,
    parse_names,
    parse_promise,
    parse_ram,
    parse_shm,
    require_writable,
    with_keys,
)
from oomproof.cli.pages import refuse_without_plotly, write_device, write_html
from oomproof.cli.screen import at_long_work, complain, show, write

if TYPE_CHECKING:
    from oomproof.memory.cards.devices import Device
    from oomproof.page.command import Typed
    from oomproof.plan.plan import Plan
    from oomproof.sources.job import Job

FITS, NOTHING_FITS, INTERRUPTED = 0, 2, 130
TAKEN = {"job", "on", "keep", "allow", "leave", "data", "grouping", "ram", "shm", "beside", "progress"}
"""arguments of oomproof.fit, which no setting can be named after"""


def fit(
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
    data: Data = "",
    records: Records = None,
    images: ImageFolder = "",
    split: Split = "",
    grouping: Grouping = None,
    ram: Ram = None,
    shm: Shm = None,
    beside: Beside = None,
    keep: Annotated[
        str,
        typer.Option(
            "--keep",
            metavar="PROMISE",
            help="What every change has to keep: identical (the same gradients) or equivalent (the same in expectation "
            "or up to rounding).",
        ),
    ] = "equivalent",
    allow: Annotated[
        list[str] | None,
        typer.Option(
            "--allow",
            metavar="KNOBS",
            help="Knobs that make another training and may be turned all the same: image_size,backbone. "
            "--knobs lists them. May be repeated.",
        ),
    ] = None,
    leave: Annotated[
        list[str] | None,
        typer.Option(
            "--leave", metavar="NAMES", help="Knobs that must stay as they are: precision,checkpoint. May be repeated."
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            "--write",
            metavar="[FILE]",
            help="Put the settings where the job came from, or into FILE, and say how to use them.",
        ),
    ] = None,
    list_knobs: Annotated[
        bool, typer.Option("--knobs", help="List what may be turned, with values and promises, and exit.")
    ] = False,
    html: Html = None,
    everything: Everything = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show everything the search tried, and the traceback of an error.")
    ] = False,
) -> None:
    """Make it fit: the best settings for a memory budget.

    Looks for the quickest settings that fit and keep their promise. The effective batch stays as it is. The answer is
    a list of changes, least harmful first, each with the bytes it frees, its time and its promise; what was turned
    down; and memory against time. No GPU is needed and no step is run.

    Exit code 0: it fits. 2: nothing that is allowed fits (the nearest miss is shown, and what would have to be
    allowed). 1: bad input or a failure. 130: interrupted, after the best so far was shown.

    \b
    Examples:
      oomproof fit torchvision:maskrcnn_resnet50_fpn --batch 16 --on "RTX 3060"
      oomproof fit train_job.py:job --on 8GiB --keep identical
      oomproof fit train_job.py:job --on 8GiB --allow image_size,backbone --json
      oomproof fit train_job.py:job --on 8GiB --leave precision
      oomproof fit train_job.py:job --on 8GiB --ram 16GiB --set workers=8
      oomproof fit train_job.py:job --on 8GiB --shm 64MiB --set workers=8
      oomproof fit train_job.py:job --on 8GiB --write
      oomproof check train_job.py:job --on 8GiB --from train_job.oomproof.json
      oomproof fit mask_rcnn_R_50_FPN_3x.yaml --on 8GiB --gpus 1 --write fitted.yaml
      oomproof fit mask_rcnn_R_50_FPN_3x.yaml --on 8GiB --gpus 1 --data annotations.json
    """
    given = gather_settings(pairs or (), batch, image_size, base, gpus, precision=precision, backend=backend)
    keys = with_keys(overrides, given)
    check_names(given, TAKEN, "oomproof.fit")
    kept, allowed = parse_promise(keep), parse_names(allow or (), "--allow", "image_size,backbone")
    left = parse_names(leave or (), "--leave", "precision,checkpoint")
    file = Path(target) if target else None
    if file is not None:
        require_writable(file, "--write")
    if html is not None:
        require_writable(html, "--html")
        refuse_without_plotly()
    device, host, shm_size = device_on(on, beside), parse_ram(ram), parse_shm(shm)
    if list_knobs:
        _print_knobs(job, keys, device, given, config_file, as_json=as_json, quiet=quiet)
        return
    with at_long_work(quiet or as_json) as say:
        import oomproof
        from oomproof import sources
        from oomproof.page.command import Typed

        dataset = dataset_at(data, images, split, grouping, lambda doing, _: say(doing, 0.0), records=records or ())
        say(f"opening {job}", 0.0)
        opened = sources.open_job(job, keys, given, config_file)
        if target is not None:
            own = opened.place  # asked even with a FILE: some jobs cannot be written anywhere
            file = file or own
            require_writable(file, "--write")
        plan = oomproof.fit(
            opened,
            device,
            keep=kept,
            allow=allowed,
            leave=left,
            data=dataset,
            grouping=grouping,
            ram=host,
            shm=shm_size,
            progress=say,
            **given,
        )
        if html is not None:
            say("the same on other GPUs", 0.0)
            _write_page(html, plan, opened, Typed(job, config_file, given, keys, write_device(on, beside)))
    _print(plan, opened, file, given, everything=everything, as_json=as_json, debug=debug)
    raise typer.Exit(INTERRUPTED if plan.interrupted else FITS if plan.fits else NOTHING_FITS)


def _write_page(path: Path, plan: Plan, job: Job, typed: Typed) -> None:
    from oomproof.api.what_if import compare_cards
    from oomproof.page.documents import check_document
    from oomproof.sources.settings import settings_of

    # Of a dataset it is the worst batch that has to fit, which is another one on each card.
    without = plan.interrupted or plan.after.epoch is not None
    cards = None if without else compare_cards(job, plan.device, plan.settings)
    write_html(path, check_document(plan.after, settings_of(job), cards, plan, typed))


def _print(
    plan: Plan,
    job: Job,
    target: Path | None,
    given: Mapping[str, Any],
    *,
    everything: bool,
    as_json: bool,
    debug: bool,
) -> None:
    from oomproof.sources.settings import settings_of

    writing = target is not None and plan.fits and not plan.interrupted
    if as_json:
        from oomproof.report import as_json as document
        from oomproof.report import plan_json

        if writing:
            _write_plan(plan, job, target)
        write(document.text(plan_json.plan(plan, target if writing else None)))
    else:
        from oomproof.report import attempts
        from oomproof.report import plan as text

        show(text.report(plan, settings_of(job), writing, named=given, everything=everything or debug))
        if debug:
            show(attempts.report(plan.attempts))
        if writing:
            write("\n" + _write_plan(plan, job, target).rstrip("\n") + "\n")
        elif plan.fits and (change := job.show_change(plan.settings)):
            write(f"\n{change}\n")
    if target is not None and not writing:
        reason = "the search was stopped" if plan.interrupted else "nothing fits"
        complain(f"{target} was not written, since {reason}")


def _write_plan(plan: Plan, job: Job, target: Path | None) -> str:
    from oomproof.report.changes import whole

    words = [f"{each.knob}: {whole(each.before)} -> {whole(each.after)}" for each in plan.changes]
    return job.write(plan.settings, target, device=plan.device.name, changes=words)


def _print_knobs(
    job: str,
    overrides: Sequence[str],
    device: Device,
    given: Mapping[str, Any],
    config_file: str,
    *,
    as_json: bool,
    quiet: bool,
) -> None:
    from oomproof import sources
    from oomproof.api.fit import list_knobs
    from oomproof.report import as_json as document
    from oomproof.report import changes, plan_json

    with at_long_work(quiet or as_json) as say:
        say(f"opening {job}", 0.0)
        found = list_knobs(sources.open_job(job, overrides, given, config_file), device, **given)
    if as_json:
        write(document.text(plan_json.knobs(found)))
    else:
        show(changes.knobs(found))


class FitCommand(TyperCommand):
    """``--write`` with or without a value. Typer (0.29) has no such options, so a bare one becomes ``--write=``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        given = join_option(args, "--write")
        words, _, _ = self.make_parser(ctx).parse_args(list(given))
        if not isinstance(words.get("job"), str):  # the only word there is: that is the job
            given = ["--write=" if each == "--write" else each for each in args]
        return list(super().parse_args(ctx, given))


def join_option(arguments: Sequence[str], option: str) -> list[str]:
    """The option joined with the word after it, or with nothing where another option or the end comes next.

    >>> join_option(["train.py:job", "--write", "--json"], "--write")
    ['train.py:job', '--write=', '--json']
    >>> join_option(["train.py:job", "--write", "here.json"], "--write")
    ['train.py:job', '--write=here.json']
    >>> join_option(["mask.yaml", "--write", "SOLVER.IMS_PER_BATCH", "8"], "--write")
    ['mask.yaml', '--write=', 'SOLVER.IMS_PER_BATCH', '8']
    """
    joined: list[str] = []
    for each in arguments:
        if joined and joined[-1] == option:
            joined[-1] = f"{option}="
            if not each.startswith("-") and not KEY.fullmatch(each):
                joined[-1] += each
                continue
        joined.append(each)
    if joined and joined[-1] == option:
        joined[-1] = f"{option}="
    return joined
