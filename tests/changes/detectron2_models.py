"""Thin models of real Detectron2 with a few small images, for the tests that need it.

Detectron2 is in no registry for current PyTorch, so these tests run where a developer has built it from its sources;
test_detectron2_step.py and test_detectron2_stages.py prove the same mathematics without it.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Detectron2 scripts functions when it is imported, which PyTorch 2.14 deprecates
    # A part of it: a folder of tests named detectron2 would do as a package without any.
    pytest.importorskip("detectron2.engine", reason="unproven by CI: needs a built Detectron2, see CONTRIBUTING.md")
    from detectron2 import model_zoo
    from detectron2.data import DatasetCatalog, MetadataCatalog
    from detectron2.engine import AMPTrainer, DefaultTrainer, SimpleTrainer
    from detectron2.modeling import build_model
    from detectron2.solver import build_optimizer
    from detectron2.structures import BoxMode
    from detectron2.utils.env import seed_all_rng
    from detectron2.utils.events import EventStorage, JSONWriter

__all__ = [  # tests take Detectron2's names from here, where its warnings are kept quiet
    "AMPTrainer",
    "DatasetCatalog",
    "DefaultTrainer",
    "EventStorage",
    "JSONWriter",
    "MetadataCatalog",
    "SimpleTrainer",
    "build_optimizer",
    "seed_all_rng",
]

OF_DETECTRON2 = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
"""Detectron2 and its libraries were written for older PyTorch, NumPy and Pillow."""

NEWER = "async_write_metrics" in inspect.signature(SimpleTrainer.__init__).parameters
"""not so in release 0.6, whose trainers have fewer options, and whose DefaultTrainer does not save its optimizer"""
SINCE_0_6 = pytest.mark.skipif(not NEWER, reason="this Detectron2 has no such option yet")

SIDE = 96
BOXES = (3, 1, 5, 2)
KINDS = {
    "mask": "COCO-InstanceSegmentation/mask_rcnn_R_50_FPN_1x.yaml",
    "cascade": "Misc/cascade_mask_rcnn_R_50_FPN_1x.yaml",
    "keypoint": "COCO-Keypoints/keypoint_rcnn_R_50_FPN_1x.yaml",
    "keypoint by images": "COCO-Keypoints/keypoint_rcnn_R_50_FPN_1x.yaml",
    "panoptic": "COCO-PanopticSegmentation/panoptic_fpn_R_50_1x.yaml",
    "retinanet": "COCO-Detection/retinanet_R_50_FPN_1x.yaml",
    "rpn": "COCO-Detection/rpn_R_50_FPN_1x.yaml",
    "c4": "COCO-Detection/faster_rcnn_R_50_C4_1x.yaml",
}


def config(kind: str = "mask", **solver: Any) -> Any:
    """A thin model of the kind, as its config in the zoo has it otherwise."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cfg = model_zoo.get_config(KINDS[kind])
    cfg.MODEL.DEVICE, cfg.MODEL.WEIGHTS = "cpu", ""
    cfg.MODEL.RESNETS.DEPTH, cfg.MODEL.RESNETS.RES2_OUT_CHANNELS = (50, 16) if kind == "c4" else (18, 64)
    cfg.MODEL.RESNETS.WIDTH_PER_GROUP = 8 if kind == "c4" else 64
    cfg.MODEL.FPN.OUT_CHANNELS = 32
    cfg.MODEL.ROI_HEADS.NUM_CLASSES = cfg.MODEL.RETINANET.NUM_CLASSES = 4
    cfg.MODEL.ROI_HEADS.BATCH_SIZE_PER_IMAGE, cfg.MODEL.RPN.BATCH_SIZE_PER_IMAGE = 24, 32
    # Fewer proposals than samples are wanted: then their number differs from image to image.
    cfg.MODEL.RPN.PRE_NMS_TOPK_TRAIN, cfg.MODEL.RPN.POST_NMS_TOPK_TRAIN = 60, 20
    cfg.MODEL.ROI_BOX_HEAD.FC_DIM, cfg.MODEL.ROI_MASK_HEAD.CONV_DIM, cfg.MODEL.ROI_MASK_HEAD.NUM_CONV = 32, 16, 1
    cfg.MODEL.ROI_KEYPOINT_HEAD.CONV_DIMS = [16]
    cfg.MODEL.ROI_KEYPOINT_HEAD.NORMALIZE_LOSS_BY_VISIBLE_KEYPOINTS = kind == "keypoint"
    cfg.MODEL.SEM_SEG_HEAD.CONVS_DIM = 32
    for key, value in solver.items():
        setattr(cfg.SOLVER, key, value)
    return cfg


def build(cfg: Any) -> torch.nn.Module:
    """Fresh weights are made smaller: normalisation that is frozen before it has learned lets them explode."""
    torch.manual_seed(0)
    model = build_model(cfg).train()
    with torch.no_grad():
        for layer in model.backbone.modules():
            if isinstance(layer, torch.nn.Conv2d):
                layer.weight.mul_(0.6)
    return model


@cache
def records() -> list[dict[str, Any]]:
    """Images with boxes, polygons and keypoints, as a registered dataset has them."""
    noise = np.random.default_rng(3)
    found = []
    for place in range(8):
        annotations = []
        for _ in range(BOXES[place % len(BOXES)]):
            left, top = noise.uniform(0, SIDE * 0.5, 2)
            right, bottom = np.array([left, top]) + noise.uniform(12, SIDE * 0.45, 2)
            points = np.stack(
                [noise.uniform(left, right, 17), noise.uniform(top, bottom, 17), noise.integers(0, 3, 17)]
            )
            annotations.append(
                {
                    "bbox": [left, top, right, bottom],
                    "bbox_mode": BoxMode.XYXY_ABS,
                    "category_id": int(noise.integers(0, 4)),
                    "segmentation": [[left, top, right, top, right, bottom]],
                    "keypoints": points.T.reshape(-1).tolist(),
                }
            )
        found.append({"image_id": place, "height": SIDE, "width": SIDE, "annotations": annotations})
    return found


@cache
def images(kind: str) -> list[dict[str, Any]]:
    """What Detectron2's data loader gives for the records."""
    from detectron2.data.detection_utils import annotations_to_instances, filter_empty_instances

    noise = torch.Generator().manual_seed(4)
    found = []
    for record in records():
        unwanted = "segmentation" if "keypoint" in kind else "keypoints"
        annotations = [{k: v for k, v in each.items() if k != unwanted} for each in record["annotations"]]
        if "keypoints" in annotations[0]:
            annotations = [each | {"keypoints": np.array(each["keypoints"]).reshape(-1, 3)} for each in annotations]
        labels = torch.randint(0, 54, (SIDE, SIDE), generator=noise)
        labels[: 10 * record["image_id"]] = 255  # unlabelled pixels, unevenly spread
        found.append(
            {
                "image": torch.randint(0, 255, (3, SIDE, SIDE), dtype=torch.uint8, generator=noise),
                "instances": filter_empty_instances(annotations_to_instances(annotations, (SIDE, SIDE))),
                "sem_seg": labels,
            }
        )
    return found


class Loader:
    def __init__(self, batches: list[Any]) -> None:
        self.batches = batches

    def __iter__(self) -> Iterator[Any]:
        while True:
            yield from self.batches


def cut(batch: list[Any], size: int) -> list[list[Any]]:
    return [batch[first : first + size] for first in range(0, len(batch), size)]


def apart(first: torch.nn.Module, second: torch.nn.Module) -> float:
    """The largest relative difference of any gradient."""
    worst = 0.0
    for (name, mine), other in zip(first.named_parameters(), second.parameters(), strict=True):
        assert (mine.grad is None) == (other.grad is None), name
        if mine.grad is not None and other.grad.norm() > 1e-6:
            worst = max(worst, ((mine.grad - other.grad).norm() / other.grad.norm()).item())
    return worst
