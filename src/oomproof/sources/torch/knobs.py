"""What every PyTorch job may change to save memory, and what each change promises for this job."""

from __future__ import annotations

from typing import Any

from oomproof.memory.about import About
from oomproof.sources.job import Knob, Option, Settings
from oomproof.sources.micro_batch import micro_batch

_ADAPTIVE = ("Adam", "AdamW", "NAdam", "RAdam")
_SECOND_BEST, _RISKY = 0.05, 0.3
"""harm of what should be taken only where it saves time, and of what trains by other rules; both are guesses"""


def training_knobs(settings: Settings, about: About, *, mean_over_images: bool, matching: bool) -> tuple[Knob, ...]:
    """``about`` is what a trace of the job found. ``mean_over_images``: its loss is a plain mean over the images
    of a batch; ``matching``: it matches anchors with boxes as torchvision does."""
    every = (
        _zero_grad(settings),
        _gradients(settings, about),
        _update(settings),
        _matching_knob(settings, matching or about.matching),
        _checkpoint(settings),
        _optimizer_state(settings),
        micro_batch(settings, about, mean_over_images=mean_over_images, exactly="of one size", uneven=True),
        _precision(settings),
        _optimizer(settings, about),
        _channels_last(settings),
        _freeze_batchnorm(settings, about),
        _width(settings),
    )
    return tuple(knob for knob in every if knob is not None)


def _zero_grad(settings: Settings) -> Knob | None:
    why = "old gradients are dropped before forward, not kept through it"
    return _switch(settings, "zero_grad", ("before_forward",), "identical", why)


def _gradients(settings: Settings, about: About) -> Knob | None:
    """Which settings of others go with it, the estimates know (plan/estimates/ways.py)."""
    at_odds = settings.get("optimizer_state") != "device" or settings.get("precision") == "fp16" or settings.get("ddp")
    one_by_one = about.at_once == "one" and settings.get("accumulate", 1) > 1
    if not about.at_once or at_odds or one_by_one:
        return None
    why = "each gradient is used and freed the moment it is there: none waits for the update"
    return _switch(settings, "gradients", ("at_once",), "identical", why)


def _update(settings: Settings) -> Knob | None:
    if settings.get("update") not in ("auto", "foreach"):
        return None
    return _switch(settings, "update", ("plain",), "identical", "parameters are updated one by one: no lists of copies")


def _matching_knob(settings: Settings, matches: bool) -> Knob | None:
    if not matches:
        return None
    why = "anchors are matched with boxes a part at a time: the same matches"
    return _switch(settings, "matching", ("chunked",), "identical", why)


def _checkpoint(settings: Settings) -> Knob | None:
    """Its further options are found by the search: which modules, and how many images at a time."""
    if settings.get("checkpoint") != "none":
        return None
    why = "activations of these modules are computed again in backward"
    return Knob("checkpoint", (Option("none", {"checkpoint": "none"}),), "identical", why)


def _optimizer_state(settings: Settings) -> Knob | None:
    if settings.get("optimizer_state") != "device":
        return None
    options = [
        Option("device", {"optimizer_state": "device"}),
        Option("host", {"optimizer_state": "host"}, note="travels over PCIe at every update"),
        Option("8bit", {"optimizer_state": "8bit"}, _SECOND_BEST, "rounded to 8 bits between updates", "equivalent"),
    ]
    return Knob("optimizer_state", tuple(options), "identical", "the optimizer's state waits in host RAM")


def _precision(settings: Settings) -> Knob | None:
    if settings.get("precision") != "fp32":
        return None
    why = "autocast: weights stay fp32, most arithmetic is rounded to 16 bits"
    halves = (Option(each, {"precision": each}, arithmetic=each) for each in ("bf16", "fp16"))
    return Knob("precision", (Option("fp32", {"precision": "fp32"}), *halves), "equivalent", why, role="precision")


def _optimizer(settings: Settings, about: About) -> Knob | None:
    if about.optimizer not in _ADAPTIVE or settings.get("optimizer") == "adafactor":
        return None
    from oomproof.changes.torch.training import has_adafactor

    if not has_adafactor():  # PyTorch 2.4
        return None
    why = "second moments as row and column sums; needs a learning rate of its own"
    return _switch(settings, "optimizer", ("adafactor",), "different", why, harm=_RISKY)


def _channels_last(settings: Settings) -> Knob | None:
    why = "another order in memory: cuDNN's half-precision kernels need no copies"
    return _switch(settings, "channels_last", (True,), "equivalent", why, harm=_SECOND_BEST)


def _freeze_batchnorm(settings: Settings, about: About) -> Knob | None:
    if not about.batchnorms:
        return None
    why = "only for pretrained weights: statistics, scale and shift stay as they are"
    return _switch(settings, "freeze_batchnorm", (True,), "different", why, harm=_RISKY)


def _width(settings: Settings) -> Knob | None:
    if settings.get("width") != 1.0:
        return None
    why = "channels with the smallest weights go from every inner layer; needs training to recover"
    parts = ((0.75, 0.08), (0.5, 0.2), (0.25, 0.45))
    options = (Option(1.0, {"width": 1.0}), *(Option(part, {"width": part}, harm) for part, harm in parts))
    return Knob("width", options, "different", why)


def _switch(
    settings: Settings, name: str, values: tuple[Any, ...], promise: str, why: str, *, harm: float = 0.0
) -> Knob | None:
    if name not in settings or settings[name] in values:
        return None
    present = Option(settings[name], {name: settings[name]})
    return Knob(name, (present, *(Option(value, {name: value}, harm) for value in values)), promise, why)
