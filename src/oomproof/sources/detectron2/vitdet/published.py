"""The published configs of ViTDet: what each says, in the keys that Detectron2's YAML configs have for the same things.

    >>> find_vitdet("LVIS/mask_rcnn_vitdet_h_100ep.py").shape.depth
    32

Read off Detectron2's repository at commit 02b5c4e (``projects/ViTDet/configs``, ``configs/common``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import PurePosixPath
from typing import Any

from oomproof.errors import InputError, did_you_mean
from oomproof.sources.detectron2.config.schema import DEFAULTS
from oomproof.sources.detectron2.vitdet.shape import VitShape
from oomproof.sources.detectron2.zoo.parts import CASCADE, FPN, MASK

SIDE = 1024
"""pixels of the square that large-scale jitter crops to, and that the model pads to"""
_SIZES: Mapping[str, tuple[int, int, int]] = {"b": (768, 12, 12), "l": (1024, 24, 16), "h": (1280, 32, 16)}
"""width, depth and heads of ViT-B, ViT-L and ViT-H"""
_DROP_PATH = {"COCO b": 0.1, "COCO l": 0.4, "COCO h": 0.5, "LVIS b": 0.1, "LVIS l": 0.4, "LVIS h": 0.4}
_STEPS = {"COCO": 184375, "LVIS": 156250}
"""of 100 epochs"""
_NAME = re.compile(r"(cascade_)?mask_rcnn_(vitdet|swin|mvitv2)_[a-z]_\w+(\.py)?")
_COMMON: Mapping[str, Any] = {
    **FPN, **MASK,
    "MODEL.PIXEL_MEAN": [123.675, 116.28, 103.53], "MODEL.PIXEL_STD": [58.395, 57.12, 57.375], "INPUT.FORMAT": "RGB",
    "MODEL.FPN.NORM": "LN", "MODEL.RPN.CONV_DIMS": [-1, -1], "MODEL.ROI_MASK_HEAD.NORM": "LN",
    "MODEL.ROI_BOX_HEAD.NORM": "LN", "MODEL.ROI_BOX_HEAD.NUM_CONV": 4, "MODEL.ROI_BOX_HEAD.NUM_FC": 1,
    "INPUT.MIN_SIZE_TEST": SIDE, "INPUT.MAX_SIZE_TEST": SIDE, "SOLVER.IMS_PER_BATCH": 64, "SOLVER.AMP.ENABLED": True,
    "SOLVER.BASE_LR": 1e-4, "SOLVER.WEIGHT_DECAY": 0.1,
}  # fmt: skip
_LVIS: Mapping[str, Any] = {
    "DATASETS.TRAIN": ("lvis_v1_train",), "DATASETS.TEST": ("lvis_v1_val",), "MODEL.ROI_HEADS.NUM_CLASSES": 1203,
    "MODEL.ROI_BOX_HEAD.USE_SIGMOID_CE": True, "MODEL.ROI_BOX_HEAD.USE_FED_LOSS": True,
    "MODEL.ROI_HEADS.SCORE_THRESH_TEST": 0.02, "TEST.DETECTIONS_PER_IMAGE": 300,
}  # fmt: skip
_CASCADE: Mapping[str, Any] = {**CASCADE, "MODEL.RPN.POST_NMS_TOPK_TRAIN": 1000}  # LazyConfigs leave it at that


@dataclass(frozen=True)
class Vitdet:
    """One published config."""

    name: str
    """``COCO/mask_rcnn_vitdet_b_100ep.py``, as below projects/ViTDet/configs"""
    shape: VitShape
    values: Mapping[str, Any]
    """every key of Detectron2's YAML configs, as far as one says the same"""

    @property
    def dataset(self) -> str:
        return self.name.partition("/")[0]


def is_name(text: str) -> bool:
    """Whether a text looks like one of the project's configs, be it known or not."""
    return bool(_NAME.fullmatch(PurePosixPath(text.replace("\\", "/")).name))


def find_vitdet(text: str) -> Vitdet:
    """The config that a text names; one that both folders have is COCO's."""
    full = full_name(text)
    if not full and "_vitdet_" not in text:
        raise InputError(f"{text}: Swin and MViTv2 of projects/ViTDet have no blueprint; known are {_list_in_words()}")
    if not full:
        known = [*_table(), *(name.rpartition("/")[2] for name in _table())]
        raise InputError(
            f"Detectron2 publishes no ViTDet config '{text}'{did_you_mean(text, known, '.')} Known are "
            f"{_list_in_words()}"
        )
    return _table()[full]


def full_name(text: str) -> str:
    """With its folder and suffix, for what a user wrote: with or without ``projects/ViTDet/configs/``, its folder, its
    suffix. Empty where there is none."""
    path = PurePosixPath(text.replace("\\", "/"))
    if not path.name or path.suffix not in ("", ".py"):
        return ""
    wanted = path.name.removesuffix(".py") + ".py"
    folder = path.parts[-2] if len(path.parts) > 1 else ""
    if f"{folder}/{wanted}" in _table():
        return f"{folder}/{wanted}"
    folders = [name for name in _table() if name.rpartition("/")[2] == wanted]
    return folders[0] if folders and folder in ("", ".", "configs") else ""


def _list_in_words() -> str:
    return ", ".join(name.removesuffix(".py") for name in list_vitdet())


def list_vitdet() -> tuple[str, ...]:
    return tuple(_table())


@cache
def _table() -> dict[str, Vitdet]:
    table: dict[str, Vitdet] = {}
    for dataset in ("COCO", "LVIS"):
        for family, extra in (("mask_rcnn", {}), ("cascade_mask_rcnn", _CASCADE)):
            for size, (width, depth, heads) in _SIZES.items():
                epochs = 75 if (dataset, size) == ("COCO", "h") else 100
                steps = {"SOLVER.MAX_ITER": _STEPS[dataset] * epochs // 100}
                values = {**DEFAULTS, **_COMMON, **extra, **(_LVIS if dataset == "LVIS" else {}), **steps}
                name = f"{dataset}/{family}_vitdet_{size}_{epochs}ep.py"
                shape = VitShape(width, depth, heads, _DROP_PATH[f"{dataset} {size}"], SIDE)
                table[name] = Vitdet(name, shape, values)
    return table
