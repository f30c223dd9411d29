"""What may be set of a ViTDet training, under the names that its LazyConfig has for it, as --set NAME=VALUE."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from oomproof.errors import InputError
from oomproof.memory.batch_spec import MOST_OBJECTS, OBJECTS_HELP, OTHER_OBJECTS
from oomproof.memory.parallel import Parallel
from oomproof.memory.runtime import CHOICES
from oomproof.memory.runtime import HELP as RUN_HELP
from oomproof.memory.settings import Role
from oomproof.sources.detectron2.notes import find_crowd
from oomproof.sources.detectron2.sizes import count_processes
from oomproof.sources.detectron2.vitdet.published import Vitdet
from oomproof.sources.detectron2.vitdet.shape import VitShape
from oomproof.sources.job import ASSUMED, Setting
from oomproof.sources.torch.job import training_settings

BATCH = "dataloader.train.total_batch_size"
HALF = "train.amp.enabled"
RECOMPUTED = "model.backbone.net.use_act_checkpoint"
BEFORE_NMS, AFTER_NMS = "model.proposal_generator.pre_nms_topk", "model.proposal_generator.post_nms_topk"
STRIDE = 32
"""of the pyramid's p5: sides are multiples of it"""
_WORKERS = "dataloader.train.num_workers"
KEYS: Mapping[str, str] = {
    BATCH: "SOLVER.IMS_PER_BATCH",
    HALF: "SOLVER.AMP.ENABLED",
    _WORKERS: "DATALOADER.NUM_WORKERS",
    "model.roi_heads.num_classes": "MODEL.ROI_HEADS.NUM_CLASSES",
    "model.roi_heads.batch_size_per_image": "MODEL.ROI_HEADS.BATCH_SIZE_PER_IMAGE",
    BEFORE_NMS: "MODEL.RPN.PRE_NMS_TOPK_TRAIN",
    AFTER_NMS: "MODEL.RPN.POST_NMS_TOPK_TRAIN",
}
"""names of LazyConfigs, and the key of YAML configs that says the same"""
_HELP = {
    BATCH: "images a step, of all GPUs together",
    HALF: "automatic mixed precision, in fp16",
    _WORKERS: "data loading processes of each GPU",
    "model.roi_heads.num_classes": "classes, background not counted",
    "model.roi_heads.batch_size_per_image": "regions of an image that the heads are trained on",
    BEFORE_NMS: "proposals before NMS, of each feature map: in training (a pair: in training and in tests)",
    AFTER_NMS: "proposals of an image after NMS: in training (a pair: in training and in tests)",
}
_ROLES: dict[str, Role] = {BATCH: "batch", _WORKERS: "workers"}
_TRAINING = ("precision", "optimizer", "update", "accumulate", "checkpoint", "zero_grad")


def list_settings(config: Vitdet) -> tuple[Setting, ...]:
    own = tuple(
        Setting(
            name,
            config.values[key],
            _HELP[name],
            read=_read_first if name in (BEFORE_NMS, AFTER_NMS) else None,
            role=_ROLES.get(name),
        )
        for name, key in KEYS.items()
    )
    side = config.shape.side
    dataset, crowd = find_crowd(config.values["DATASETS.TRAIN"])
    more = f", about {crowd} that of {dataset}" if crowd else ""
    around = (
        Setting(RECOMPUTED, False, "every block of the transformer is computed again in backward"),
        Setting("gpus", 1, f"GPUs that share {BATCH}"),
        Setting(
            "image_size", (side, side),
            "the square that images are cropped and padded to, in pixels: image_size of the loader, and img_size and "
            "square_pad of the backbone",
            given_as="--image-size {value}",
        ),
        Setting("boxes", crowd or MOST_OBJECTS, OBJECTS_HELP + more, basis=ASSUMED, usual=OTHER_OBJECTS),
    )  # fmt: skip
    return (*own, *around, *_training(config.shape), *_run())


def read_values(config: Vitdet, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Every key of YAML configs, as ``settings`` have it."""
    side = max(settings["image_size"])
    tests = {"INPUT.MIN_SIZE_TEST": side, "INPUT.MAX_SIZE_TEST": side}
    return {**config.values, **{key: settings[name] for name, key in KEYS.items()}, **tests}


def read_shape(config: Vitdet, settings: Mapping[str, Any]) -> VitShape:
    height, width = settings["image_size"]
    if height != width or height % STRIDE:
        raise InputError(
            f"image_size of a ViTDet must be a square whose side is a multiple of {STRIDE} pixels, since positions are "
            f"learned for it; got {height}x{width}"
        )
    return replace(config.shape, side=height)


def images_per_gpu(settings: Mapping[str, Any]) -> int:
    return Parallel(settings["gpus"]).share(settings[BATCH], BATCH)


def name_blocks(shape: VitShape) -> str:
    """The transformer's blocks as the setting ``checkpoint`` takes them."""
    return ",".join(f"backbone.net.blocks.{number}" for number in range(shape.depth))


def _training(shape: VitShape) -> tuple[Setting, ...]:
    follows: dict[str, Callable[[Mapping[str, Any]], Any]] = {
        "precision": lambda settings: "fp16" if settings[HALF] else "fp32",
        "checkpoint": lambda settings: name_blocks(shape) if settings[RECOMPUTED] else "none",
    }
    found = training_settings({"zero_grad": "before_backward", "precision": "fp16"})
    return tuple(replace(each, follows=follows.get(each.name)) for each in found if each.name in _TRAINING)


def _run() -> tuple[Setting, ...]:
    """Of the run around the step; Detectron2's data sets are arrays of pickled bytes, and its one epoch never ends."""
    return (
        Setting("ddp", False, RUN_HELP["ddp"], follows=lambda settings: settings["gpus"] > 1),
        Setting("processes", 1, RUN_HELP["processes"], follows=count_processes),
        Setting("workers", 4, RUN_HELP["workers"], follows=lambda settings: settings[_WORKERS], plays=False),
        Setting("annotations", "buffers", RUN_HELP["annotations"], CHOICES["annotations"]),
        Setting("persistent_workers", True, RUN_HELP["persistent_workers"]),
    )


def _read_first(given: Any) -> int:
    """Of a pair, what training takes: LazyConfigs have both in one list."""
    try:
        value = ast.literal_eval(given) if isinstance(given, str) else given
        value = value[0] if isinstance(value, (tuple, list)) and len(value) == 2 else value
    except (ValueError, SyntaxError):
        value = None
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InputError(
            f"a number of proposals such as 1000, or a pair such as (1000, 1000), is expected; got {given!r}"
        )
    return value
