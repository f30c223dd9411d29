"""What a ViTDet training may change for memory, under the names of its LazyConfig."""

from __future__ import annotations

from oomproof.memory.about import About
from oomproof.sources.detectron2.vitdet.settings import AFTER_NMS, BATCH, STRIDE
from oomproof.sources.image_sizes import harm_of_size, smaller_sizes
from oomproof.sources.job import Knob, Option, Settings
from oomproof.sources.torch.knobs import training_knobs

_SAMPLES = ((256, 0.01), (128, 0.025), (64, 0.05))
_PROPOSALS = ((500, 0.015), (250, 0.04))
"""with the harm that the same change does to other models of Detectron2: a guess"""


def list_knobs(settings: Settings, about: About) -> tuple[Knob, ...]:
    common = training_knobs(settings, about, mean_over_images=False, matching=False)
    every = (
        *(knob for knob in common if knob.name != BATCH),
        _cut_batch(settings),
        _fewer("model.roi_heads.batch_size_per_image", _SAMPLES, settings, "the heads train on fewer regions"),
        _fewer(AFTER_NMS, _PROPOSALS, settings, "the heads choose from fewer proposals"),
        _shrink_images(settings),
    )
    return tuple(knob for knob in every if knob is not None)


def _cut_batch(settings: Settings) -> Knob | None:
    """Micro-batches that keep the effective batch; each GPU gets as many images as the others."""
    whole, already = settings[BATCH], settings["accumulate"]
    sizes = [size for size in range(whole - settings["gpus"], 0, -settings["gpus"]) if whole % size == 0]
    options = [Option(whole, {BATCH: whole, "accumulate": already})]
    for size in sizes:
        count = already * whole // size
        options.append(Option(f"{size} x {count}", {BATCH: size, "accumulate": count}))
    why = "same effective batch; losses are divided by counts of each micro-batch, as they are on several GPUs"
    return Knob(BATCH, tuple(options), "equivalent", why, role="batch") if sizes else None


def _fewer(name: str, less: tuple[tuple[int, float], ...], settings: Settings, why: str) -> Knob | None:
    options = [Option(settings[name], {name: settings[name]})]
    options += [Option(value, {name: value}, harm) for value, harm in less if value < settings[name]]
    return Knob(name, tuple(options), "different", why) if len(options) > 1 else None


def _shrink_images(settings: Settings) -> Knob | None:
    side = settings["image_size"][0]
    options = [Option(side, {"image_size": (side, side)})]
    for (smaller,), factor in smaller_sizes((side,), STRIDE):
        options.append(Option(smaller, {"image_size": (smaller, smaller)}, harm_of_size(factor)))
    why = "fine detail and small objects are lost first; image_size, img_size and square_pad change together"
    return Knob("image_size", tuple(options), "different", why) if len(options) > 1 else None
