"""What every Keras job may change to save memory, and what each change promises for this job."""

from __future__ import annotations

from oomproof.memory.about import About
from oomproof.sources.image_sizes import harm_of_size, likely_divisor, smaller_sizes
from oomproof.sources.job import Knob, Option, Settings
from oomproof.sources.micro_batch import micro_batch
from oomproof.trace.xla.installed import is_xla_installed

_ADAPTIVE = ("Adam", "AdamW", "Nadam", "Adamax")
_ACCUMULATOR = "gradient_accumulation_steps"
_RISKY = 0.3
"""harm of an optimizer with other rules; a guess"""
_WIDTHS = ((0.75, 0.08), (0.5, 0.2), (0.25, 0.45))


def training_knobs(settings: Settings, about: About) -> tuple[Knob, ...]:
    """``about`` is what a trace of the job found."""
    every = (
        _checkpoint(settings, about),
        micro_batch(settings, about, mean_over_images=about.mean_over_images, by=_ACCUMULATOR),
        _precision(settings, about),
        _optimizer(settings, about),
        _jit_compile(settings),
        _image_size(settings),
        _width(settings),
    )
    return tuple(knob for knob in every if knob is not None)


def _checkpoint(settings: Settings, about: About) -> Knob | None:
    """Its further options are found by the search."""
    if settings.get("checkpoint") != "none" or not about.blocks:
        return None
    why = "the blocks that end with these layers are computed again in backward"
    return Knob("checkpoint", (Option("none", {"checkpoint": "none"}),), "identical", why)


def _precision(settings: Settings, about: About) -> Knob | None:
    present = settings.get("precision")
    if "precision" not in settings or about.precision != "float32":
        return None
    policies = {"mixed_bfloat16": "bf16", "mixed_float16": "fp16"}
    halves = (Option(name, {"precision": name}, arithmetic=half) for name, half in policies.items())
    options = (Option("float32", {"precision": present}), *halves)
    why = "Keras's own policy: weights stay float32, layers compute in 16 bits; float16 scales the loss"
    return Knob("precision", options, "equivalent", why, role="precision")


def _optimizer(settings: Settings, about: About) -> Knob | None:
    if about.optimizer not in _ADAPTIVE or "optimizer" not in settings:
        return None
    present = Option(settings["optimizer"], {"optimizer": settings["optimizer"]})
    why = "second moments as row and column sums; needs a learning rate of its own"
    return Knob("optimizer", (present, Option("adafactor", {"optimizer": "adafactor"}, _RISKY)), "different", why)


def _jit_compile(settings: Settings) -> Knob | None:
    """XLA needs its compiler to be forecast, and may undo what is to be computed again."""
    present = settings.get("jit_compile")
    other = {"true": "false", "false": "true"}.get(str(present))
    if settings.get("backend") != "tensorflow" or other is None:
        return None
    if other == "true" and (not is_xla_installed() or settings.get("checkpoint") != "none"):
        return None
    why = {
        "true": "XLA plans the memory; it fuses operations and rounds in another order. Its time is not known here",
        "false": "operations run one by one, and round in another order than XLA's",
    }
    options = tuple(Option(value, {"jit_compile": value}) for value in (str(present), other))
    return Knob("jit_compile", options, "equivalent", why[other])


def _image_size(settings: Settings) -> Knob | None:
    present = settings.get("image_size")
    if not isinstance(present, tuple):
        return None
    options = [Option(present, {"image_size": present})]
    for size, factor in smaller_sizes(present, likely_divisor(present)):
        options.append(Option(size, {"image_size": size}, harm_of_size(factor)))
    why = "fine detail and small objects are lost first"
    return Knob("image_size", tuple(options), "different", why, role="image size") if len(options) > 1 else None


def _width(settings: Settings) -> Knob | None:
    if settings.get("width") != 1.0:
        return None
    why = "fewer filters and units in every inner layer, with new weights: it has to be trained from the start"
    options = (Option(1.0, {"width": 1.0}), *(Option(part, {"width": part}, harm) for part, harm in _WIDTHS))
    return Knob("width", options, "different", why)
