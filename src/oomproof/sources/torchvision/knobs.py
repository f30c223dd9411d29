"""What a torchvision job may give up for memory: each of these makes another training.

``harm`` is about the share of the metric that a change costs, so that knobs can be held against each other.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from oomproof.sources.image_sizes import harm_of_size, smaller_sizes
from oomproof.sources.job import Knob, Option, Role, Settings
from oomproof.sources.torchvision import families
from oomproof.sources.zoo import Published, list_published

ANOTHER_MODEL = 0.02
"""the least harm of another architecture, however good: hyperparameters and checkpoints are no longer those tuned"""

ENOUGH, SHARES = 6, (0.9, 0.7, 0.5)
"""how many other models are worth looking at, and of a better one's arithmetic a worse one may need at most this"""

_SAMPLES = ((256, 0.01), (128, 0.025), (64, 0.05))
_PROPOSALS = ((1000, 0.005), (500, 0.015), (250, 0.04))
_WIDTHS = ((0.75, 0.03), (0.5, 0.09), (0.35, 0.16))  # MobileNetV2: 72.0, 69.8, 65.4, 60.3 % (its paper's repository)
_ALL_FROZEN = 0.1
_BACKBONE_HARM = 1.5
"""detectors lose about this much more than the share of ImageNet accuracy their backbone loses"""


def knobs(model: str, task: str, settings: Settings) -> tuple[Knob, ...]:
    """The knobs of ``model``, the one that ``settings`` chose, from the present values on."""
    every = [_image_size(model, settings), _trainable_layers(model, settings)]
    if families.is_rcnn(model):
        every.append(_fewer("roi_samples", _SAMPLES, settings, "the heads train on fewer regions of each image"))
        every.append(_fewer("proposals", _PROPOSALS, settings, "the heads choose from fewer proposals"))
    if families.has_width(model):
        every.append(_fewer("width_mult", _WIDTHS, settings, "fewer channels; torchvision has no weights for them"))
    if families.has_backbone(model) and "backbone" in settings:
        every.append(_backbone(settings))
    every.append(_model(model, task, settings))
    return tuple(knob for knob in every if knob is not None)


def _image_size(model: str, settings: Settings) -> Knob | None:
    if families.is_built_for_one_size(model):
        return None
    present, anchors = settings["image_size"], settings.get("anchor_scale")
    # A network of a fixed input was published for one size: below it, nothing is known of it.
    least = min(families.default_size(model, "detection")[1]) if families.has_fixed_input(model) else 0
    options = [_size_option(present, 1.0, anchors)]
    for size, factor in smaller_sizes(present, families.size_divisor(model)):
        if min(size) >= least:
            options.append(_size_option(size, factor, anchors))
    return _knob("image_size", options, "fine detail and small objects are lost first", "image size")


def _size_option(size: tuple[int, ...], factor: float, anchors: float | None) -> Option:
    also = {} if anchors is None else {"anchor_scale": round(anchors * factor, 4)}
    if factor == 1.0:
        return Option(size, {"image_size": size, **({} if anchors is None else {"anchor_scale": anchors})})
    note = "anchors become smaller by the same factor" if also else ""
    return Option(size, {"image_size": size, **also}, harm_of_size(factor), note)


def _fewer(name: str, values: Iterable[tuple[float, float]], settings: Settings, why: str) -> Knob | None:
    if name not in settings:
        return None
    present = settings[name]
    less = [Option(value, {name: value}, harm, why) for value, harm in values if value < present]
    return _knob(name, [Option(present, {name: present}), *less], why)


def _trainable_layers(model: str, settings: Settings) -> Knob | None:
    if settings.get("weights") == "none" or "trainable_layers" not in settings:
        return None
    name, given = "trainable_layers", settings["trainable_layers"]
    present = given if given >= 0 else families.count_trained_layers(model)
    options = [Option(present, {name: given})]
    for layers in range(present - 1, -1, -1):
        harm = round(_ALL_FROZEN * ((present - layers) / present) ** 1.5, 3)
        options.append(Option(layers, {name: layers}, harm, "earlier layers keep their pretrained weights"))
    return _knob(name, options, "frozen stages keep no activations; they no longer adapt to the data")


def _backbone(settings: Settings) -> Knob | None:
    present = settings["backbone"]
    before = _backbone_accuracy(present)
    # The whole model's weights exist for the usual backbone only.
    weights = {"weights": "backbone"} if settings["weights"] == "default" else {}
    options = [Option(present, {"backbone": present})]
    for lighter in families.BACKBONES[families.BACKBONES.index(present) + 1 :]:
        after = _backbone_accuracy(lighter)
        note = f"ImageNet acc@1 of the backbone {before:.1f} -> {after:.1f}; no AP is published"
        harm = round(_BACKBONE_HARM * (before - after) / before, 3)
        options.append(Option(lighter, {"backbone": lighter, **weights}, harm, note))
    return _knob("backbone", options, "a lighter network under the same heads")


def _backbone_accuracy(name: str) -> float:
    """Of the first weights: later ones of ResNet-50 come from a longer training that the lighter ones did not get."""
    from torchvision.models import get_model_weights

    first = next(iter(get_model_weights(name)))
    return float(first.meta["_metrics"]["ImageNet-1K"]["acc@1"])


def _model(model: str, task: str, settings: Settings) -> Knob | None:
    entries = {entry.model: entry for entry in list_published(task)}
    present = entries[model]
    lighter = [
        entry
        for entry in entries.values()
        if entry.outputs == present.outputs
        and (entry.parameters < present.parameters or entry.gflops < present.gflops)
        and _can_stand_in(entry, present, settings)
    ]
    options = [Option(model, {"model": model})]
    for entry in _worth_it(lighter):
        note = f"published {present.metric} {present.value:.1f} -> {entry.value:.1f}"
        chosen: dict[str, Any] = {"model": entry.model}
        if families.has_fixed_input(entry.model):  # else it would be built for the images of the present model
            _, chosen["image_size"] = families.default_size(entry.model, task)
            note += " for images of {}x{}".format(*chosen["image_size"])
        options.append(Option(entry.model, chosen, _harm(present, entry), note))
    return _knob("model", options, "another architecture, with its own published accuracy")


def _can_stand_in(entry: Published, present: Published, settings: Settings) -> bool:
    """It takes the images that the present model gets, and its metric is not owed to larger ones."""
    if families.has_fixed_input(entry.model):
        return True
    if entry.side > max(present.side, *settings["image_size"]):
        return False
    if entry.model.startswith("vit_"):  # built for square images in whole patches
        return present.model.startswith("vit_") and entry.model[-2:] == present.model[-2:]
    # The 320 detector is the other MobileNet one at a smaller image_size, which has a knob of its own.
    return not families.is_built_for_one_size(entry.model) and "_320_" not in entry.model


def _worth_it(entries: Iterable[Published]) -> list[Published]:
    """The best metric first; a model stays only if it needs clearly less arithmetic than all that are better, or
    works on smaller images than they do. Where these are many they must differ more, and then some are left out."""
    ranked = sorted(entries, key=lambda each: (-each.value, each.gflops))
    kept: list[Published] = []
    for share in SHARES:
        kept = []
        for entry in ranked:
            if all(entry.gflops < share * better.gflops or entry.side < better.side for better in kept):
                kept.append(entry)
        if len(kept) <= ENOUGH:
            return kept
    return [kept[round(place * (len(kept) - 1) / (ENOUGH - 1))] for place in range(ENOUGH)]


def _harm(present: Published, instead: Published) -> float:
    return round(ANOTHER_MODEL + max(0.0, (present.value - instead.value) / present.value), 3)


def _knob(name: str, options: list[Option], why: str, role: Role | None = None) -> Knob | None:
    return Knob(name, tuple(options), "different", why, role=role) if len(options) > 1 else None
