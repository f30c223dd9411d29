"""What to try next: options of ``oomproof check`` that the job really has, each with the bytes it concerns.

The surest come first: a smaller batch, for which the estimate scales what grows with images (activations, inputs,
temporaries, workspace) in proportion and aims the upper figure at the budget. What the others save is said as the
bytes they concern, an upper bound; the next check traces it anew.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from oomproof.memory.forecast import Forecast
from oomproof.report.sizes import GIB, gib, sides
from oomproof.report.verdict import tight
from oomproof.sources.job import Role, Setting

Choices = Mapping[str, tuple[str, ...]]
"""the job's settings by name, with the values each may take (empty: any)"""
WORTH_SAYING = GIB // 20
GRID = 32
"""image sides are suggested in multiples of what detectors pad to"""
PIXELS, SMALLEST_IMAGE = 0.75, 0.1
"""the part taken to shrink with an image's pixels (the heads of detectors do not), and the least share of them left"""


@dataclass(frozen=True)
class Step:
    """Add ``option`` to the command, for ``reason``."""

    option: str
    reason: str


def next_steps(forecast: Forecast, settings: Sequence[Setting]) -> tuple[str, tuple[Step, ...]]:
    """A sentence, and the options that go with it (there may be none)."""
    names = {setting.name for setting in settings}
    if forecast.outcome == "fits":
        return _room(forecast, names), ()
    if forecast.on_device_outcome == "fits":
        return _on_the_host(forecast)
    choices = {setting.name: setting.choices for setting in settings}
    tries = (_batch, _image_size, _precision, _checkpoint, _optimizer, _fused, _buckets, _expandable)
    steps = [step for attempt in tries if (step := attempt(forecast, choices))]
    missing = gib(forecast.excess) if forecast.excess > 0 else "a little"
    # A saved step can be replayed under other rules, but not made smaller.
    roles: tuple[Role, ...] = ("batch", "image size", "precision")
    whole = any(forecast.settings.name_of(role) in names for role in roles)
    inside = "" if whole else "make the job smaller (batch, fp16, image size)"
    if not steps:
        return f"save {missing} to be safe: {inside or 'a larger GPU is what is left'}", ()
    way = inside or "`oomproof fit` finds the best way"
    return f"save {missing} to be safe: {way}; these help, the surest first:", tuple(steps)


def _on_the_host(forecast: Forecast) -> tuple[str, tuple[Step, ...]]:
    short = gib(forecast.host.high - (forecast.ram or 0))
    sentence = f"save {short} of host RAM to be safe: `oomproof fit` with the same --ram finds out how"
    workers = _now(forecast, "workers")
    if not workers:
        return sentence, ()
    step = Step("--set workers=0", f"{workers} data workers, each with memory of its own and batches that wait")
    return f"{sentence}; this helps:", (step,)


def _room(forecast: Forecast, names: set[str]) -> str:
    room = f"{gib(max(0, -forecast.excess))} stay free even at worst"
    if tight(forecast):
        room = "it is tight, so keep other programs off the device"
    batch = forecast.settings.name_of("batch")
    if batch in names and forecast.settings.sharing == 1:
        return f"{room}; --sweep {batch}=1..16 finds the largest batch"
    return f"{room}; nothing to change"


def _expandable(forecast: Forecast, choices: Choices) -> Step | None:
    unused = forecast.reserved.high - forecast.allocated.high
    if "expandable_segments" not in choices or _now(forecast, "expandable_segments") or unused < WORTH_SAYING:
        return None
    return Step("--set expandable_segments=true", f"some of {gib(unused)} reserved, unused")


def _buckets(forecast: Forecast, choices: Choices) -> Step | None:
    gradients = forecast.kinds.get("gradient", 0)
    in_use = _now(forecast, "ddp") and not _now(forecast, "gradient_as_bucket_view")
    if "gradient_as_bucket_view" not in choices or not in_use or gradients < WORTH_SAYING:
        return None
    return Step("--set gradient_as_bucket_view=true", f"DDP drops its second copy, {gib(gradients)}")


def _fused(forecast: Forecast, choices: Choices) -> Step | None:
    scratch = forecast.kinds.get("temporary", 0)
    slow = _now(forecast, "update") in ("auto", "foreach") and forecast.phase == "optimizer"
    if "fused" not in choices.get("update", ()) or not slow or scratch < WORTH_SAYING:
        return None
    return Step("--set update=fused", f"most of {gib(scratch)} of temporaries of the update")


def _checkpoint(forecast: Forecast, choices: Choices) -> Step | None:
    activations = forecast.kinds.get("activation", 0)
    off = "checkpoint" in choices and _now(forecast, "checkpoint") == "none"
    if not off or activations < WORTH_SAYING:
        return None
    every = "all" if "jit_compile" in choices else "nonreentrant"  # Keras's word for it, and PyTorch's
    return Step(f"--set checkpoint={every}", f"part of {gib(activations)} of activations, for time")


def _precision(forecast: Forecast, choices: Choices) -> Step | None:
    activations = forecast.kinds.get("activation", 0)
    if _now(forecast, "precision") != "fp32" or activations < WORTH_SAYING:
        return None
    if "SOLVER.AMP.ENABLED" in choices:
        return Step("SOLVER.AMP.ENABLED True", f"up to half of {gib(activations)} of activations, less what stays fp32")
    # bf16 needs no loss scaling, but only Ampere and later compute in it.
    wanted = ("bf16", "fp16") if forecast.device.capability >= (8, 0) else ("fp16",)
    half = next((name for name in wanted if name in choices.get("precision", ())), "")
    return (
        Step(f"--set precision={half}", f"up to half of {gib(activations)} of activations, less what stays fp32")
        if half
        else None
    )


def _batch(forecast: Forecast, choices: Choices) -> Step | None:
    name, gpus = forecast.settings.name_of("batch"), forecast.settings.sharing
    now = _now(forecast, name)
    if name not in choices or not isinstance(now, int) or now < 2 * gpus:
        return None
    fitting = max(1, min(now // gpus - 1, math.floor(now // gpus * _share_that_fits(forecast)))) * gpus
    # Keys of Detectron2 stand behind the job, other names have options.
    option = (
        f"--batch {fitting}" if name == "batch" else f"{name} {fitting}" if "." in name else f"--set {name}={fitting}"
    )
    return Step(option, f"about {gib(_scales(forecast) * gpus // now)} an image")


def _image_size(forecast: Forecast, choices: Choices) -> Step | None:
    now = sides(_now(forecast, "image_size"))
    # resize=model: torchvision's detectors bring images of any size to the one they were built for.
    if "image_size" not in choices or not now or min(now) <= 2 * GRID or _now(forecast, "resize") == "model":
        return None
    share = _share_that_fits(forecast, PIXELS)
    if share < SMALLEST_IMAGE:
        return None
    scale = math.sqrt(share)
    smaller = [max(GRID, math.floor(side * scale / GRID) * GRID) for side in now]
    option = f"--image-size {'x'.join(map(str, smaller))}"
    if "INPUT.MIN_SIZE_TRAIN" in choices:
        option = f'INPUT.MIN_SIZE_TRAIN "({min(smaller)},)" INPUT.MAX_SIZE_TRAIN {max(smaller)}'
    return Step(option, f"{gib(_scales(forecast))} grow with the pixels")


def _optimizer(forecast: Forecast, choices: Choices) -> Step | None:
    state = forecast.kinds.get("optimizer", 0)
    adaptive = str(_now(forecast, "optimizer")).lower().startswith("adam")
    if not adaptive or "sgd" not in choices.get("optimizer", ()) or state < forecast.allocated.expected // 5:
        return None
    return Step("--set optimizer=sgd", f"half of {gib(state)} of optimizer state")


def _now(forecast: Forecast, name: str) -> Any:
    return forecast.settings.get(name)


def _scales(forecast: Forecast) -> int:
    """Bytes at the peak that grow with images and pixels."""
    return sum(forecast.kinds.get(kind, 0) for kind in ("activation", "input", "temporary", "workspace"))


def _share_that_fits(forecast: Forecast, scaling: float = 1.0) -> float:
    """How much of what scales (or of the part ``scaling`` of it) may stay for the upper figure to meet the budget."""
    scales = scaling * _scales(forecast)
    return min(1.0, max(0.0, 1 - forecast.excess / scales)) if scales else 1.0
