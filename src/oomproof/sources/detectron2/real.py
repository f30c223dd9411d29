"""Detectron2's own code, where it is installed: the model it builds from a config, and a batch in its structures."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from oomproof.frameworks.torch import SYMBOLIC_TRACE_LOG


def build_real_model(values: Mapping[str, Any]) -> torch.nn.Module:
    with _quiet():
        from detectron2.modeling import build_model

        made: torch.nn.Module = build_model(as_config(values))
    return made


def loss(model: torch.nn.Module, data: Any) -> Any:
    """The losses of a batch; Detectron2's models count things for its log on the way."""
    from detectron2.utils.events import EventStorage

    with _quiet(), EventStorage(0):
        return model(data)


def infer(model: torch.nn.Module, data: Any) -> Any:
    """What a model in eval mode finds, masks drawn at the size that images are stored in."""
    with _quiet():
        return model(data)


@contextmanager
def _quiet() -> Iterator[None]:
    """Detectron2 0.6 asks for what newer PyTorch (seen in 2.14) warns of; a user can do nothing about it here."""
    log = logging.getLogger(SYMBOLIC_TRACE_LOG)
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(level)


def as_config(values: Mapping[str, Any]) -> Any:
    """Detectron2's own config object. The model is built on the CPU: the tracer stands in for the GPU."""
    from detectron2.config import get_cfg

    cfg = get_cfg()
    for key, value in {**values, "MODEL.DEVICE": "cpu"}.items():
        section, _, last = key.rpartition(".")
        node = cfg
        for part in section.split(".") if section else ():
            node = node[part]
        node[last] = value
    return cfg


def make_real_batch(
    values: Mapping[str, Any], images: int, height: int, width: int, boxes: int
) -> list[dict[str, Any]]:
    """The blueprint's batch, with its objects in Detectron2's structures."""
    from oomproof.sources.detectron2.blueprint import batch as blueprint

    made = blueprint.make_batch(values, images, height, width, boxes)
    return [_convert_image(each, values, (height, width)) for each in made]


def _convert_image(image: Mapping[str, Any], values: Mapping[str, Any], size: tuple[int, int]) -> dict[str, Any]:
    from detectron2.structures import Boxes, Instances

    found = dict(image)
    if "instances" in image:
        found["instances"] = _instances(image["instances"], values, size)
    if "proposals" in image:
        proposals = Instances(size)
        proposals.proposal_boxes = Boxes(image["proposals"])
        proposals.objectness_logits = torch.zeros(len(image["proposals"]))
        found["proposals"] = proposals
    return found


def _instances(truth: Mapping[str, torch.Tensor], values: Mapping[str, Any], size: tuple[int, int]) -> Any:
    from detectron2.structures import BitMasks, Boxes, Instances, Keypoints, PolygonMasks

    made = Instances(size)
    made.gt_boxes, made.gt_classes = Boxes(truth["gt_boxes"]), truth["gt_classes"]
    if "gt_masks" in truth:
        made.gt_masks = BitMasks(truth["gt_masks"])
    elif values["MODEL.MASK_ON"]:
        made.gt_masks = PolygonMasks([[_outline(box)] for box in truth["gt_boxes"].tolist()])
    if "gt_keypoints" in truth:
        made.gt_keypoints = Keypoints(truth["gt_keypoints"])
    return made


def _outline(box: list[float]) -> list[float]:
    left, top, right, bottom = box
    return [left, top, right, top, right, bottom, left, bottom]
