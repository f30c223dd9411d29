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
    Beside,
    ConfigFile,
    Data,
    Debug,
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
    Patience,
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
    parse_ram,
    parse_shm,
    require_writable,
    sweep_values,
    with_keys,
)
from oomproof.cli.pages import refuse_without_plotly, write_device, write_html
from oomproof.cli.screen import at_work, show, write
from oomproof.errors import InputError
from oomproof.sources.script.command import MARK

if TYPE_CHECKING:
    from oomproof.memory.forecast import Forecast
    from oomproof.memory.grid import Grid
    from oomproof.memory.sweep import Sweep
    from oomproof.memory.validation import Validation
    from oomproof.page.command import Typed
    from oomproof.sources.job import Job

FITS, DOES_NOT_FIT = 0, 2
TAKEN = {"job", "on", "name", "values", "data", "grouping", "validate", "ram", "shm", "beside", "save", "progress"}
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
    data: Data = "",
    records: Records = None,
    images: ImageFolder = "",
    split: Split = "",
    grouping: Grouping = None,
    validate: Annotated[
        bool | None,
        typer.Option(
            "--validate/--no-validate",
            help="Look at what comes between epochs too: the model in eval mode beside the optimizer's state, masks "
            "drawn at full size; of a script, its own first validation.  [default: where TorchJob(validate=...) says "
            "how]",
            show_default=False,
        ),
    ] = None,
    validation_batch: Annotated[
        int, typer.Option("--validation-batch", metavar="N", help="Images of a validation batch; 0: as the job has it.")
    ] = 0,
    validation_keeps: Annotated[
        int,
        typer.Option(
            "--validation-keeps", metavar="N", help="Batches whose predictions stay on the device until the end."
        ),
    ] = 0,
    validation_grad: Annotated[
        bool, typer.Option("--validation-grad", help="The validation runs without torch.no_grad().")
    ] = False,
    ram: Ram = None,
    shm: Shm = None,
    beside: Beside = None,
    patience: Patience = None,
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
    html: Html = None,
    what_ifs: Annotated[
        list[str] | None,
        typer.Option(
            "--what-if",
            metavar="NAME=VALUES",
            help="Of --html: a slider of the page, batch=1,2,4,8, beside those for batch, image size and precision. By "
            "default it has these, boxes, optimizer and recomputation; `none` leaves all away. May be repeated; every "
            "combination is traced, so it takes its time.",
            show_default=False,
        ),
    ] = None,
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
      oomproof check --on "RTX 3060" -- python train.py --batch-size 16
      oomproof check train_job.py:job --on 8GiB --set precision=fp16 --json
      oomproof check torchvision:retinanet_resnet50_fpn --sweep batch=1..16 --on T4
      oomproof check mask_rcnn_R_50_FPN_3x.yaml --on "RTX 3060" SOLVER.IMS_PER_BATCH 8
      oomproof check torchvision:fcos_resnet50_fpn --on T4 --save step.timeline
      oomproof check step.timeline --on "RTX 4090"
      oomproof check train_job.py:job --on 8GiB --ram 16GiB --set workers=8
      oomproof check torchvision:maskrcnn_resnet50_fpn --batch 4 --data annotations.json --on "RTX 4070"
      oomproof check pipeline.config --records "train.record-*" --on "GTX 1080 Ti"
      oomproof check torchvision:ssd300_vgg16 --on T4 --html report.html --what-if batch=4,8,16
    """
    given = gather_settings(pairs or (), batch, image_size, base, gpus, precision=precision, backend=backend)
    given |= {"patience": patience} if patience is not None else {}
    keys = with_keys(overrides, given)
    swept = sweep_values(sweep) if sweep else None
    if save is not None:
        if swept is not None:
            raise InputError("--save keeps one step, but --sweep makes many: leave one of them out")
        require_writable(save, "--save")
    if swept is not None and (data or records):
        raise InputError("--data looks at many batches, and --sweep at many values: leave one of them out")
    if html is not None:
        if swept is not None and what_ifs:
            raise InputError("--sweep looks at one setting and --what-if at several: leave one of them out")
        require_writable(html, "--html")
        refuse_without_plotly()
    elif what_ifs:
        raise InputError("--what-if makes sliders of a page: say where to write it, --html report.html")
    axes = (
        None
        if what_ifs == ["none"] or data or records
        else dict(sweep_values(each, "--what-if") for each in what_ifs or ())
    )
    if list_settings:
        _print_settings(job, keys, given, config_file, as_json=as_json)
        return
    check_names(given, TAKEN, "oomproof.check")
    device, host, shm_size = device_on(on, beside), parse_ram(ram), parse_shm(shm)
    how = _validation(validate, validation_batch, validation_keeps, validation_grad)
    if swept is not None and (how or shm is not None):
        raise InputError("--sweep looks at training steps alone: leave out --validate and --shm")
    with at_work(quiet or as_json) as say:
        import oomproof
        from oomproof import sources
        from oomproof.page.command import Typed

        dataset = dataset_at(data, images, split, grouping, lambda doing, _: say(doing), records=records or ())
        say(f"opening {job.removeprefix(MARK)}")
        opened = sources.open_job(job, keys, given, config_file)
        answer: Forecast | Sweep
        if swept:
            name, values = swept
            answer = oomproof.sweep(opened, device, name, values, ram=host, progress=say, **given)
            if html is not None:
                from oomproof.page.documents import sweep_document

                write_html(html, sweep_document(answer))
        else:
            answer = oomproof.check(
                opened,
                device,
                data=dataset,
                grouping=grouping,
                validate=how,
                ram=host,
                shm=shm_size,
                save=save,
                progress=say,
                **given,
            )
            if html is not None:
                grid = None if axes is None else oomproof.what_if(opened, device, axes, progress=say, **given)
                _write_page(html, answer, opened, grid, Typed(job, config_file, given, keys, write_device(on, beside)))
    fits = _print(answer, opened, given, everything=everything, as_json=as_json)
    raise typer.Exit(FITS if fits else DOES_NOT_FIT)


def _write_page(path: Path, answer: Forecast, job: Job, grid: Grid | None, typed: Typed) -> None:
    from oomproof.page.documents import check_document
    from oomproof.sources.settings import settings_of

    write_html(path, check_document(answer, settings_of(job), grid, typed=typed))


def _validation(validate: bool | None, batch: int, keeps: int, grad: bool) -> Validation | bool | None:
    """What ``--validate`` and the options beside it ask for."""
    from oomproof.memory.validation import Validation

    if not (batch or keeps or grad):
        return validate
    if validate is False:
        raise InputError("--no-validate leaves nothing for --validation-batch, -keeps and -grad to say")
    return Validation(batch, keeps, grad)


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
