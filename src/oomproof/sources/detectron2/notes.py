"""What a reader of a forecast should know about a config: keys that do nothing, what was assumed, where it is from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from oomproof.memory.batch_spec import MOST_OBJECTS, note_on_objects
from oomproof.sources.detectron2.config import keys
from oomproof.sources.detectron2.config.config import COMMAND_LINE, Config
from oomproof.sources.detectron2.config.schema import DEFAULTS
from oomproof.sources.detectron2.sizes import images_per_gpu, is_beyond_config


def notes(
    config: Config, values: Mapping[str, Any], settings: Mapping[str, Any], *, own_sizes: bool = False
) -> list[str]:
    """``own_sizes``: code of a script makes the images, whatever INPUT says."""
    gpus, images = settings["gpus"], images_per_gpu(settings)
    own = _own(config)
    found = [*config.notes, *_note_unknown_keys(config, values), *_idle(config, own, values)]
    written_for = settings["SOLVER.REFERENCE_WORLD_SIZE"]
    if written_for not in (0, gpus):
        found.append(
            f"SOLVER.REFERENCE_WORLD_SIZE {written_for}: on {gpus} GPU(s) Detectron2 rescales SOLVER.IMS_PER_BATCH "
            f"{settings['SOLVER.IMS_PER_BATCH']} to {images * gpus}, and the schedule with it"
        )
    if gpus == 1 and "SOLVER.IMS_PER_BATCH" not in own and images == config.values["SOLVER.IMS_PER_BATCH"] > 2:
        found.append(f"SOLVER.IMS_PER_BATCH {images} is all on one GPU; --gpus N shares it among several")
    if is_beyond_config(settings) and not own_sizes:
        size = "x".join(map(str, settings["image_size"]))
        found.append(
            f"image_size {size} was forecast, but Detectron2 makes images smaller: "
            f"INPUT.MIN_SIZE_TRAIN is {settings['INPUT.MIN_SIZE_TRAIN']}, INPUT.MAX_SIZE_TRAIN "
            f"{settings['INPUT.MAX_SIZE_TRAIN']}"
        )
    found += _note_crowd(values, settings["boxes"]) or note_on_objects(settings["boxes"])
    if values["MODEL.META_ARCHITECTURE"] in ("GeneralizedRCNN", "PanopticFPN"):
        found.append(note_full_samplers(values))
    blueprint = "a blueprint of Detectron2's model was traced, not Detectron2 itself"
    found.append("Detectron2's own code was traced" if settings["real"] else blueprint)
    return found


def is_on_gpu(values: Mapping[str, Any]) -> bool:
    """``cuda``, or one of several: ``cuda:1``."""
    return str(values["MODEL.DEVICE"]).partition(":")[0] == "cuda"


def note_device(values: Mapping[str, Any]) -> list[str]:
    """What stands under the verdict: the GPU that was forecast is not what this config trains on."""
    device = values["MODEL.DEVICE"]
    return [] if is_on_gpu(values) else [f"MODEL.DEVICE {device}: this training uses no GPU; forecast is cuda"]


def note_full_samplers(values: Mapping[str, Any]) -> str:
    most = int(values["MODEL.ROI_HEADS.BATCH_SIZE_PER_IMAGE"] * values["MODEL.ROI_HEADS.POSITIVE_FRACTION"])
    return (
        f"samplers are taken as full: {most} regions of objects in every image, as crowded data and a trained "
        "network give; on sparse data a step takes less"
    )


MORE_CROWDED = {"cityscapes": 114, "lvis_v1": 750, "lvis": 450}
"""Datasets with fuller images than COCO's, and about how many objects those have. Read off Detectron2's own figures
(docs/accuracy.md): nobody publishes the counts. Of Cityscapes, 98 people in one image are known for sure."""


def find_crowd(datasets: Sequence[str]) -> tuple[str, int]:
    """The first of the datasets that is fuller than COCO, and how full; ("", 0) where none is known to be."""
    for dataset in datasets:
        for name, most in MORE_CROWDED.items():
            if str(dataset).startswith(name):
                return str(dataset), most
    return "", 0


def _note_crowd(values: Mapping[str, Any], objects: int) -> list[str]:
    """That the default is too few for the dataset of the config, where that is known."""
    if objects != MOST_OBJECTS:
        return []
    dataset, most = find_crowd(values["DATASETS.TRAIN"])
    if not most:
        return []
    return [
        f"{MOST_OBJECTS} objects in every image, but {dataset} has images with more, about {most}: give "
        f"--data with its annotations, or --set boxes={most}"
    ]


def _note_unknown_keys(config: Config, values: Mapping[str, Any]) -> list[str]:
    """Keys that nobody knows and no forecast needs."""
    left = [why for key, why in config.unknown.items() if not keys.matters(key, values)]
    return [f"{why}; memory does not depend on it" for why in left]


def _own(config: Config) -> list[str]:
    """Keys that the user's own file, script or command line sets to something else. A base serves many configs."""
    mine = (config.name, COMMAND_LINE)
    return [
        key for key, origin in config.origins.items() if origin.file in mine and config.values[key] != DEFAULTS[key]
    ]


def _idle(config: Config, own: Sequence[str], values: Mapping[str, Any]) -> list[str]:
    """Those of them that nothing reads in this config."""
    reasons: dict[str, list[str]] = {}
    for key in own:
        why = keys.idle(key, values)
        if why:
            reasons.setdefault(why, []).append(f"{key} ({config.origins[key]})")
    return [f"does nothing here, since {why}: {', '.join(found)}" for why, found in reasons.items()]
