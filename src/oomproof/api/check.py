"""Will it fit? From a job and a device to a Forecast.

>>> import oomproof
>>> forecast = oomproof.check("torchvision:resnet50", on="RTX 3060", batch=64)   # doctest: +SKIP
>>> forecast.outcome, forecast.on_device.expected                                 # doctest: +SKIP
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal

from oomproof.data.annotations.dataset import Dataset
from oomproof.data.annotations.read import read_dataset, read_records
from oomproof.epoch.largest_images import find_largest
from oomproof.epoch.same_batches import with_same_batches
from oomproof.epoch.worst_batch import find_worst_batch
from oomproof.errors import CannotDo, InputError, JobError
from oomproof.memory import make_forecast
from oomproof.memory.after_training import in_cache
from oomproof.memory.cards.beside import hold_beside
from oomproof.memory.cards.devices import Device, find_device
from oomproof.memory.files import timeline_file
from oomproof.memory.forecast import Forecast, Hint, Seconds
from oomproof.memory.host_memory import ram_of, shm_of
from oomproof.memory.make_forecast import with_validation
from oomproof.memory.runtime import Runtime
from oomproof.memory.settings import Role
from oomproof.memory.sweep import Sweep, hold_to_smaller
from oomproof.memory.timeline import Timeline
from oomproof.memory.validation import Validation
from oomproof.sources import as_job
from oomproof.sources.job import Job, Progress, Settings, TraceRequest
from oomproof.sources.least_memory import with_least
from oomproof.sources.run_knobs import all_knobs
from oomproof.sources.settings import resolve
from oomproof.trace.request import be_silent

__all__ = ["check", "sweep"]

_MORE_WORK: tuple[Role, ...] = ("batch", "image size", "boxes")
"""what a larger value of means more work"""

Data = str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | Dataset | Literal[False] | None
"""annotations, or TFRecord files; False: nothing is read, not even what the job names itself"""
QUICKLY_READ = 2_000_000_000
"""bytes of records that are read without being asked to: ten seconds"""
QUICKLY_TRACED = 15_000
"""blocks of a step that is traced in a few seconds, so that one more trace for a figure is worth it"""
WORTH_SAYING = 1 << 26
"""bytes that a change must save to be advised: 64 MiB"""


def check(
    job: Any,
    on: str | Device,
    *,
    data: Data = None,
    grouping: bool | None = None,
    validate: bool | Validation | None = None,
    ram: str | int | None = None,
    shm: str | int | None = None,
    beside: str | int | None = None,
    save: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> Forecast:
    """Forecasts the memory of one training step of ``job`` on a device: a GPU's name, a size, ``this``. With ``ram``
    (``16GiB``), the outcome is also that of the host RAM. With ``data``, a dataset or its annotations (a list: TFRecord
    files), the step is that of the worst batch an epoch can make (``forecast.epoch`` names it); files that the job
    itself names are read where they are here, unless ``data`` is False. ``grouping`` says whether the data loader puts
    images of like aspect ratio together, where not as the job has it. ``validate``: what comes between epochs is looked
    at too; None: where the job itself says how. ``shm``: what /dev/shm can hold (``64MiB``). ``beside``: what
    another job holds on the device (``3GiB``). ``save`` keeps the traced step in a file."""
    granted, shared = None if ram is None else ram_of(ram), None if shm is None else shm_of(shm)
    device = hold_beside(find_device(on) if isinstance(on, str) else on, beside)
    opened = as_job(job, settings=settings)
    if any(setting.name == "validate" for setting in opened.settings):  # a script validates itself, while it is traced
        settings, validate = {**settings, "validate": bool(validate)}, False
    resolved, say = resolve(opened, settings), progress or be_silent
    request = TraceRequest(resolved, device, progress=say)
    dataset, left = find_dataset(opened, data, say)
    rule = None
    if dataset is not None:
        opened = opened.with_data(dataset)
        rule = opened.batch_rule(resolved)
    if dataset is None or rule is None or rule.same:
        step = with_least(opened, request, opened.trace(request))
        if dataset is not None and rule is not None:
            step = with_same_batches(step, dataset, rule)
        say("replaying the allocator")
        resolved = resolve(opened, settings)  # a script says only while it runs with how many workers it does
        forecast = forecast_step(step, device, resolved)
    else:
        found = find_worst_batch(opened, dataset, request, grouping)
        step, forecast = found.step, found.forecast
    if left:
        forecast = replace(forecast, notes=(*forecast.notes, left))
    if save is not None:
        timeline_file.save(step, save)
    how = Validation() if validate or (validate is None and opened.validates(resolved)) else None
    how = validate if isinstance(validate, Validation) else how
    if how is not None:
        forecast = with_validation(forecast, forecast_validation(opened, request, how, dataset, (step, forecast)))
        if opened.validates_apart:
            forecast = replace(forecast, notes=(*forecast.notes, _describe_both(forecast)))
    hints: tuple[Hint, ...] = ()
    if forecast.on_device_outcome != "fits":
        hints = advise(opened, resolved, device, step, forecast)
        quick = len(step.born) <= QUICKLY_TRACED and step.about.allocator == "cuda" and not step.about.recorded
        if quick and dataset is None:
            say("tracing what is advised")
            hints = tuple(_with_figures(opened, resolved, device, forecast, hints))
    seconds = _step_time(step, device, resolved)
    return replace(forecast, ram=granted, shm_limit=shared, hints=hints, step_seconds=seconds)


def forecast_validation(
    job: Job,
    request: TraceRequest,
    how: Validation,
    dataset: Dataset | None,
    training: tuple[Timeline, Forecast] | None = None,
) -> Forecast:
    """Of what comes between epochs; with a dataset, of its largest images. ``training``: what it follows in the same
    process, as it was traced."""
    assert request.device is not None
    same = dataset is None or job.batch_rule(request.settings).same
    batch = None if dataset is None or same else find_largest(job, dataset, request.settings, how)
    meant = replace(request, validation=how, batch=batch)
    step = with_least(job, meant, job.trace(meant))
    answer = forecast_step(step, request.device, request.settings)
    if job.validates_apart:
        answer = replace(answer, hints=(Hint("", {}, None, "identical", job.validates_apart),))
    elif training is not None:
        runtime = make_forecast.at_runtime(request.settings)
        answer = in_cache(answer, (training[0], step), training[1], request.device, runtime)
    if batch is None:
        return answer
    names = ", ".join(f"{image.name} ({image.height}x{image.width})" for image in batch.images)
    return replace(answer, notes=(*answer.notes, f"validation is that of the largest images: {names}"))


def _describe_both(forecast: Forecast) -> str:
    """Two processes on one card."""
    assert forecast.validation is not None
    both = forecast.on_device.expected + forecast.validation.on_device.expected
    fits = "fits" if both <= forecast.budget else "does not fit"
    return (
        "evaluation is a process of its own: on the same card at the same time as the training, both take "
        f"{both / 2**30:.2f} of {forecast.budget / 2**30:.2f} GiB, which {fits}; TensorFlow takes all of a card unless "
        "it is kept from that (--set memory_growth=true, --set memory_limit_mb=N)"
    )


def find_dataset(job: Job, data: Data, say: Progress) -> tuple[Dataset | None, str]:
    """What a job is held against, and why the files that it names itself are not, where they are not."""
    if data is not None:
        return (None if data is False else open_dataset(data)), ""
    files = job.data_files()
    if not files:
        return None, ""
    size = sum(file.stat().st_size for file in files)
    if size > QUICKLY_READ:
        return None, f"its {len(files)} data files ({size / 1e9:,.1f} GB) were not read: --records reads them"
    try:
        return read_records(files, progress=lambda doing, done: say(doing)), ""
    except InputError as error:
        return None, f"its data files were not read: {error}"


def open_dataset(data: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | Dataset) -> Dataset:
    if isinstance(data, Dataset):
        return data
    return read_dataset(data) if isinstance(data, (str, os.PathLike)) else read_records(data)


def advise(job: Job, settings: Settings, device: Device, step: Timeline, forecast: Forecast) -> tuple[Hint, ...]:
    """What would help a step that was traced and does not fit. Nothing more is traced."""
    from oomproof.plan.hints import find_hints
    from oomproof.plan.problem import Problem
    from oomproof.plan.tracing import Tracing

    knobs = tuple(knob for knob in all_knobs(job, settings, step.about, device) if not knob.host)
    tracing = Tracing(job, device, lambda text, done: None)
    return find_hints(tracing, Problem(job, device, settings, knobs), step, forecast)


def _with_figures(
    job: Job, settings: Settings, device: Device, now: Forecast, hints: tuple[Hint, ...]
) -> Iterator[Hint]:
    """Hints that want a trace to have a figure get one; one that would save nothing is left out: a network that casts
    back to fp32 may take more in half precision."""
    for hint in hints:
        if hint.saves is not None or not hint.settings:
            yield hint
            continue
        other = settings.with_values(hint.settings)
        try:
            then = forecast_step(job.trace(TraceRequest(other, device)), device, other)
        except (CannotDo, JobError):  # the job's own code does not run in it
            continue
        if now.excess - then.excess >= WORTH_SAYING:
            yield replace(hint, saves=now.excess - then.excess)


def sweep(
    job: Any,
    on: str | Device,
    name: str,
    values: Sequence[Any],
    *,
    ram: str | int | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> Sweep:
    """The same as ``check`` for several values of one setting. A value that the job cannot be trained with (one image,
    under batch normalisation) does not cost the others their answer."""
    granted = None if ram is None else ram_of(ram)
    device = find_device(on) if isinstance(on, str) else on
    opened = as_job(job, settings=settings)
    # Every value is checked before the first trace, which may take a minute.
    runs = [resolve(opened, {**settings, name: value}) for value in values]
    rows, refused, step = [], [], None
    for count, asked in enumerate(runs, 1):
        if step is None or name not in vars(Runtime()):
            say = _add_prefix(progress or be_silent, f"{name} {count} of {len(runs)}: ")
            request = TraceRequest(asked, device, progress=say)
            try:
                step = with_least(opened, request, opened.trace(request))
            except (CannotDo, JobError) as error:
                refused.append((_value(asked, name), str(error)))
                if len(refused) == len(runs):
                    raise
                continue
        resolved = resolve(opened, {**settings, name: values[count - 1]})  # with what is only seen while it runs
        row = replace(
            forecast_step(step, device, resolved), ram=granted, step_seconds=_step_time(step, device, resolved)
        )
        rows.append((_value(resolved, name), row))
    rising = any(runs[0].name_of(role) == name or role == name for role in _MORE_WORK) if runs else False
    return Sweep(name, hold_to_smaller(rows) if rising else tuple(rows), tuple(refused))


def forecast_step(step: Timeline, device: Device, settings: Settings) -> Forecast:
    """What a traced step means on a device."""
    traced = step.about.settings
    known = Settings({**traced, **settings}, {**traced.roles, **settings.roles})
    return make_forecast.build_forecast(
        step, device, make_forecast.at_runtime(settings), step.about.job or "job", known
    )


def trace_job(job: Job, settings: Settings, device: Device | None = None) -> Timeline:
    """A job's step as a Timeline, under resolved settings."""
    return job.trace(TraceRequest(settings, device))


def _step_time(step: Timeline, device: Device, settings: Settings) -> Seconds | None:
    from oomproof.plan.estimates.roofline import step_time

    return step_time(step, device, settings.micro_batches)


def _value(settings: Settings, name: str) -> Any:
    """What a setting was read as; ``batch`` may be the word for another name."""
    return settings[name] if name in settings else settings.of("batch")


def _add_prefix(say: Progress, prefix: str) -> Progress:
    return lambda doing: say(prefix + doing)
