"""``oomproof run pipeline.config``: what a training is to be done with, so that it fits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from oomproof.api.fit import fit
from oomproof.errors import InputError
from oomproof.files.looking import is_file
from oomproof.memory.cards.devices import find_device
from oomproof.memory.forecast import Forecast
from oomproof.plan.plan import Plan
from oomproof.run.tf_object_detection.folder import require_writable
from oomproof.run.tf_object_detection.request import TrainingRequest
from oomproof.sources.job import PROMISES
from oomproof.sources.settings import resolve
from oomproof.sources.tf_object_detection.config.config import read_config
from oomproof.sources.tf_object_detection.fields import BATCH
from oomproof.sources.tf_object_detection.run_job import FULL, HALF, RunJob
from oomproof.sources.tf_object_detection.trainable import require_trainable

_GIB = 1 << 30


def plan_training(
    path: Path,
    model_dir: Path,
    *,
    on: str = "",
    steps: int | None = None,
    accumulate: int | None = None,
    recompute: bool | None = None,
    half: bool = False,
    gpus: int = 1,
    seed: int | None = None,
    log_every: int = 100,
    save_every: int = 1000,
    progress: Callable[[str, float], None] | None = None,
) -> tuple[TrainingRequest, list[str]]:
    """A request for the training process, and lines that say what it will do. With ``on``, a device or a size, the step
    is forecast; where it does not fit, blocks are computed again, then batches cut into micro-batches. ``accumulate``
    and ``recompute`` say it beforehand; ``half`` lets layers compute in float16."""
    config = read_config(path)
    require_writable(model_dir)
    require_trainable(config, begins=not is_file(model_dir / "checkpoint"))
    job = RunJob(config.name, config)
    count = steps or job.steps
    if not count:
        raise InputError(f"{config.name} does not say how many steps there are: --steps N")
    given = _build_settings(job.whole_batch, gpus, accumulate, recompute, half)
    settings, lines = resolve(job, given), list[str]()
    job.step_request(settings)  # refuses what cannot be shared by the GPUs
    if on:
        plan = _plan(job, on, given, fixed=accumulate is not None, half=half, progress=progress)
        settings, lines = plan.settings, [_describe(plan, on)]
    pieces = settings["accumulate"]
    if pieces > 1:
        lines += [f"not as with the whole batch: {reason}" for reason in job.why_not_exact()]
    if pieces > 1 and not job.norms_are_frozen:
        lines.append(
            f"batch normalisation takes its statistics from {settings[BATCH] // gpus} images of a micro-batch; running "
            "statistics change once an update, by the mean over its micro-batches"
        )
    request = job.step_request(settings)
    return (
        TrainingRequest(
            text=job.text_for(settings),
            model_dir=str(model_dir),
            height=request.height,
            width=request.width,
            steps=count,
            accumulate=pieces,
            precision=settings["precision"],
            recompute=settings["recompute"],
            gpus=gpus,
            seed=seed,
            log_every=log_every,
            save_every=save_every,
            memory_limit_mb=settings.get("memory_limit_mb") or 0,
        ),
        lines,
    )


def _build_settings(
    whole: int, gpus: int, accumulate: int | None, recompute: bool | None, half: bool
) -> dict[str, Any]:
    pieces = accumulate or 1
    if gpus < 1 or whole % gpus or (whole // gpus) % pieces:
        each = f" on each of {gpus} GPUs" if gpus != 1 else ""
        raise InputError(
            f"a batch of {whole} cannot be cut into {pieces} micro-batches{each}: expected numbers that divide it"
        )
    return {
        BATCH: whole // pieces, "accumulate": pieces, "recompute": bool(recompute), "gpus": gpus,
        "precision": HALF if half else FULL,
    }  # fmt: skip


def _plan(
    job: RunJob,
    on: str,
    given: dict[str, Any],
    *,
    fixed: bool,
    half: bool,
    progress: Callable[[str, float], None] | None,
) -> Plan:
    """What keeps the training as it is comes first; then what is as good. Precision is the user's to choose."""
    device = find_device(on)
    leave = ["precision"] if not half else []
    if fixed and given[BATCH] != 1:
        leave.append(BATCH)
    plan: Plan | None = None
    for keep in PROMISES[:2]:
        plan = fit(job, device, keep=keep, leave=leave, progress=progress, **given)
        if plan.fits or fixed:
            break
    assert plan is not None
    if not plan.fits:
        raise InputError(
            f"{job.name} does not fit {on}: {_gib(plan.before)} as it is, {_gib(plan.after)} with all that keeps the "
            f"training (micro-batches, recomputation); allow --precision fp16, or see what else there is: oomproof fit"
        )
    return plan


_OURS = (BATCH, "recompute", "precision")


def _describe(plan: Plan, on: str) -> str:
    settings = plan.settings
    if not plan.changes:
        return f"fits {on} as it is: {_gib(plan.after)}"
    words = []
    if settings["accumulate"] > 1:
        words.append(f"{settings['accumulate']} micro-batches of {settings[BATCH]} an update")
    if settings["recompute"]:
        words.append("blocks computed again in the backward pass")
    if settings["precision"] == HALF:
        words.append("layers in float16")
    words += [f"{each.knob} {each.after}" for each in plan.changes if each.knob not in _OURS]
    return f"as it is it needs {_gib(plan.before)}, too much for {on}: {', '.join(words)}; now {_gib(plan.after)}"


def _gib(forecast: Forecast) -> str:
    used = forecast.on_device
    return f"{used.expected / _GIB:.2f} GiB ({used.high / _GIB:.2f} at worst)"
