"""What a Detectron2 training may change for memory, under Detectron2's own names for it.

``harm`` is about the share of AP that a change costs, as in the other knobs.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from oomproof.memory.about import About
from oomproof.sources.detectron2.notes import is_on_gpu
from oomproof.sources.detectron2.schedule import rescale_schedule
from oomproof.sources.detectron2.sizes import largest_image
from oomproof.sources.detectron2.zoo.parts import BACKBONES
from oomproof.sources.image_sizes import harm_of_size, smaller_sizes
from oomproof.sources.job import Knob, Option, Settings

Values = Mapping[str, Any]

_SMALLER_BATCH = 0.01
_SAMPLES = ((256, 0.01), (128, 0.025), (64, 0.05))
_PROPOSALS = ((1000, 0.005), (500, 0.015), (250, 0.04))
_CANDIDATES = ((6000, 0.002), (2000, 0.005), (1000, 0.01), (500, 0.02))
_ALL_FROZEN = 0.1
_AP = {"X_101_32x8d": 43.0, "R_101": 42.0, "R_50": 40.2}
"""box AP of Faster R-CNN with FPN on these, 3x schedule, in Detectron2's MODEL_ZOO.md"""
_STRIDE = 32
_SHAPE = (
    "MODEL.RESNETS.DEPTH", "MODEL.RESNETS.NUM_GROUPS", "MODEL.RESNETS.WIDTH_PER_GROUP", "MODEL.RESNETS.STRIDE_IN_1X1",
    "MODEL.PIXEL_STD", "MODEL.WEIGHTS",
)  # fmt: skip
"""what a backbone of the zoo decides"""


_SCHEDULE = ("SOLVER.BASE_LR", "SOLVER.MAX_ITER", "SOLVER.STEPS", "SOLVER.WARMUP_ITERS")


def knobs(
    values: Values, settings: Settings, about: About, unknown: Mapping[str, str] = MappingProxyType({})
) -> tuple[Knob, ...]:
    """``unknown`` are keys of a script that only a run tells: what rests on them is not offered."""
    weights = unknown.get("MODEL.WEIGHTS", "")
    rescaling = not any(key in unknown for key in _SCHEDULE)
    every = (
        _zero_grad(settings),
        _checkpoint(settings),
        _batch(values, settings, about, rescaling),
        _half_precision(settings) if is_on_gpu(values) else None,  # Detectron2 asserts a GPU
        _grouping_knob(settings),
        _workers(settings),
        _image_size(values, settings),
        _fewer("MODEL.ROI_HEADS.BATCH_SIZE_PER_IMAGE", _SAMPLES, settings, "the heads train on fewer regions"),
        _fewer("MODEL.RPN.POST_NMS_TOPK_TRAIN", _PROPOSALS, settings, "the heads choose from fewer proposals"),
        _fewer("MODEL.RPN.PRE_NMS_TOPK_TRAIN", _CANDIDATES, settings, "NMS chooses from fewer proposals"),
        None if weights and "get_checkpoint_url" not in weights else _freeze(values, settings),
        None if weights else _backbone(values),
    )
    return tuple(knob for knob in every if knob is not None)


def _zero_grad(settings: Settings) -> Knob | None:
    if settings["zero_grad"] != "before_backward":
        return None
    why = "old gradients are dropped before forward, not kept through it: one line of code"
    options = tuple(Option(value, {"zero_grad": value}) for value in ("before_backward", "before_forward"))
    return Knob("zero_grad", options, "identical", why)


def _checkpoint(settings: Settings) -> Knob | None:
    if settings["checkpoint"] != "none":
        return None
    why = "activations of these modules are computed again in backward: one line of code"
    return Knob("checkpoint", (Option("none", {"checkpoint": "none"}),), "identical", why)


def _batch(values: Values, settings: Settings, about: About, rescaling: bool) -> Knob | None:
    """Micro-batches that keep the effective batch, with two lines of code; and, for those who allow the knob, a batch
    that is really smaller, with the schedule that the linear rule gives it."""
    name, gpus = "SOLVER.IMS_PER_BATCH", settings.sharing
    whole, already = settings[name], settings["accumulate"]
    sizes = [size for size in range(whole - gpus, 0, -gpus) if whole % size == 0]
    if not sizes:
        return None
    options = [Option(whole, {name: whole, "accumulate": already})]
    for size in sizes:
        count = already * whole // size
        promise = "different" if about.batchnorms and size == 1 else ""  # statistics of one image by itself
        options.append(
            Option(f"{size} x {count}", {name: size, "accumulate": count}, 0.0, _describe_kept(about), promise)
        )
    for size in sizes if rescaling else ():
        schedule = rescale_schedule(values, size / whole)
        words = ", ".join(f"{key.rpartition('.')[2]} {value}" for key, value in schedule.items())
        smaller = {name: size, "accumulate": already, **schedule}
        options.append(Option(f"{size} alone", smaller, _SMALLER_BATCH, f"by the linear rule {words}", "different"))
    return Knob(name, tuple(options), "equivalent", "fewer images at a time", role="batch")


def _describe_kept(about: About) -> str:
    if about.batchnorms:
        return "same effective batch; BatchNorm takes its statistics from fewer images"
    return "same effective batch; losses are divided by counts of each micro-batch, as they are on several GPUs"


def _half_precision(settings: Settings) -> Knob | None:
    name = "SOLVER.AMP.ENABLED"
    if settings[name] or settings["precision"] != "fp32":
        return None
    options = (Option(False, {name: False, "precision": "fp32"}), Option(True, {name: True, "precision": "fp16"}))
    why = "autocast: weights stay fp32, most arithmetic is rounded to 16 bits"
    return Knob(name, options, "equivalent", why, role="precision")


def _grouping_knob(settings: Settings) -> Knob | None:
    name = "DATALOADER.ASPECT_RATIO_GROUPING"
    then = largest_image({**settings, name: True}) if 0 not in _sides(settings) else settings["image_size"]
    if settings[name] or settings["image_size"] == then:
        return None
    options = (Option(False, {name: False}), Option(True, {name: True, "image_size": then}))
    return Knob(name, options, "equivalent", "upright and lying images come in batches of their own: less padding")


def _workers(settings: Settings) -> Knob | None:
    name, present = "DATALOADER.NUM_WORKERS", settings["DATALOADER.NUM_WORKERS"]
    options = (Option(count, {name: count, "workers": count}) for count in range(present, 0, -1))
    why = "data may come too late; random augmentations draw otherwise"
    return Knob(name, tuple(options), "equivalent", why, host=True) if present else None


def _image_size(values: Values, settings: Settings) -> Knob | None:
    """Everything that is measured in pixels becomes smaller together: images, in tests too, and anchors."""
    sides = _sides(settings)
    if 0 in sides:
        return None
    options = [Option(_describe_sides(sides, settings["INPUT.MAX_SIZE_TRAIN"]), {"image_size": settings["image_size"]})]
    for (shorter,), factor in smaller_sizes((max(sides),), _STRIDE):
        given = _scale_sizes(values, factor, max(sides), shorter)
        size = tuple(round(side * factor) for side in settings["image_size"])
        said = _describe_sides(given["INPUT.MIN_SIZE_TRAIN"], given["INPUT.MAX_SIZE_TRAIN"])
        note = "test images and anchors become smaller by the same factor"
        options.append(Option(said, {**given, "image_size": size}, harm_of_size(factor), note))
    return _knob("INPUT.MIN_SIZE_TRAIN", options, "fine detail and small objects are lost first")


def _scale_sizes(values: Values, factor: float, largest: int, shorter: int) -> dict[str, Any]:
    sides = values["INPUT.MIN_SIZE_TRAIN"]
    sides = (sides,) if isinstance(sides, int) else sides
    smaller: dict[str, Any] = {}
    smaller["INPUT.MIN_SIZE_TRAIN"] = tuple(shorter if side == largest else round(side * factor) for side in sides)
    for key in ("INPUT.MAX_SIZE_TRAIN", "INPUT.MIN_SIZE_TEST", "INPUT.MAX_SIZE_TEST"):
        smaller[key] = round(values[key] * factor)
    if values["MODEL.META_ARCHITECTURE"] != "SemanticSegmentor":
        sizes = values["MODEL.ANCHOR_GENERATOR.SIZES"]
        smaller["MODEL.ANCHOR_GENERATOR.SIZES"] = [[round(size * factor, 2) for size in level] for level in sizes]
    return smaller


def _sides(settings: Settings) -> tuple[int, ...]:
    sides = settings["INPUT.MIN_SIZE_TRAIN"]
    return (sides,) if isinstance(sides, int) else tuple(sides)


def _describe_sides(sides: tuple[int, ...], longest: int) -> str:
    shorter = f"{min(sides)}-{max(sides)}" if len(set(sides)) > 1 else str(max(sides))
    return f"{shorter}, at most {longest}"


def _fewer(name: str, less: tuple[tuple[int, float], ...], settings: Settings, why: str) -> Knob | None:
    if name not in settings:
        return None
    present = settings[name]
    options = [Option(present, {name: present})]
    options += [Option(value, {name: value}, harm) for value, harm in less if value < present]
    return _knob(name, options, why)


def _freeze(values: Values, settings: Settings) -> Knob | None:
    """Only where the training starts from weights: random ones must not be frozen."""
    name = "MODEL.BACKBONE.FREEZE_AT"
    present = settings[name]
    stages = max((int(stage[3:]) for stage in values["MODEL.RESNETS.OUT_FEATURES"] if stage[3:].isdigit()), default=0)
    if not values["MODEL.WEIGHTS"] or not values["MODEL.BACKBONE.NAME"].startswith("build_"):
        return None
    options = [Option(present, {name: present})]
    for frozen in range(present + 1, stages + 1):
        harm = round(_ALL_FROZEN * ((frozen - present) / max(1, stages - present)) ** 1.5, 3)
        options.append(Option(frozen, {name: frozen}, harm, "earlier stages keep their pretrained weights"))
    return _knob(name, options, "frozen stages keep no activations; they no longer adapt to the data")


def _backbone(values: Values) -> Knob | None:
    """Along the zoo's own backbones, with their weights; other networks have no lighter one that is published."""
    shapes = {name: _shape(name) for name in _AP}
    now = {key: values[key] for key in _SHAPE}
    present = next((name for name, shape in shapes.items() if shape == now), "")
    if not present or values["MODEL.RESNETS.NORM"] != "FrozenBN":
        return None
    names = list(_AP)
    options = [Option(values["MODEL.RESNETS.DEPTH"], {"MODEL.RESNETS.DEPTH": values["MODEL.RESNETS.DEPTH"]})]
    for lighter in names[names.index(present) + 1 :]:
        changed = {key: value for key, value in shapes[lighter].items() if value != now[key]}
        note = f"published AP of Faster R-CNN {_AP[present]} -> {_AP[lighter]}"
        said = shapes[lighter]["MODEL.RESNETS.DEPTH"]
        harm = round((_AP[present] - _AP[lighter]) / _AP[present], 3)
        options.append(Option(f"{said} (ResNet-{said})", changed, harm, note))
    return _knob("MODEL.RESNETS.DEPTH", options, "a lighter ResNet, with its own published weights")


def _shape(name: str) -> dict[str, Any]:
    from oomproof.sources.detectron2.config.schema import DEFAULTS

    return {key: BACKBONES[name].get(key, DEFAULTS[key]) for key in _SHAPE}


def _knob(name: str, options: list[Option], why: str) -> Knob | None:
    return Knob(name, tuple(options), "different", why) if len(options) > 1 else None
