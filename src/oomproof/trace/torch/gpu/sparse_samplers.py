"""Samplers as empty as sparse data leave them: what a step takes at least.

Trainings put the annotated boxes themselves among the proposals, so that each is found; that no proposal comes near one
is the least that can happen. All other samples are background.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch

from oomproof.frameworks.detectron2 import sampling_by


@contextmanager
def sparse_samplers(model: torch.nn.Module) -> Iterator[None]:
    with _sparse_torchvision(model), _sparse_detectron2(model), _sparse_blueprints(model):
        yield


def has_samplers(model: torch.nn.Module) -> bool:
    """Whether how many regions the model's heads see depends on what its samplers find."""
    return bool(_torchvision_heads(model) or _detectron2_heads(model) or _blueprints(model))


@contextmanager
def _sparse_torchvision(model: torch.nn.Module) -> Iterator[None]:
    if not _torchvision_heads(model):
        yield
        return
    heads = sys.modules["torchvision.models.detection.roi_heads"].RoIHeads
    plain = heads.assign_targets_to_proposals

    def only_annotated(self: Any, proposals: Any, gt_boxes: list[torch.Tensor], gt_labels: Any) -> Any:
        matched, labels = plain(self, proposals, gt_boxes, gt_labels)
        return matched, [_only_last(some, len(boxes)) for some, boxes in zip(labels, gt_boxes, strict=True)]

    with patch.object(heads, "assign_targets_to_proposals", only_annotated):
        yield


@contextmanager
def _sparse_detectron2(model: torch.nn.Module) -> Iterator[None]:
    if not _detectron2_heads(model):
        yield
        return
    heads = sys.modules["detectron2.modeling.roi_heads.roi_heads"].ROIHeads

    def only_annotated(
        plain: Any, found: Any, matched: torch.Tensor, labels: torch.Tensor, classes: torch.Tensor
    ) -> Any:
        annotated = classes.numel() if found.proposal_append_gt else 0
        return plain(found, matched, _only_last(labels, annotated), classes)

    with sampling_by(heads, only_annotated):
        yield


@contextmanager
def _sparse_blueprints(model: torch.nn.Module) -> Iterator[None]:
    found = _blueprints(model)
    for module in found:
        module.full_samplers = False
    try:
        yield
    finally:
        for module in found:
            module.full_samplers = True


def _only_last(labels: torch.Tensor, count: int) -> torch.Tensor:
    """Labels of an image's proposals, of which only the last ``count`` may be objects: they are the annotated boxes."""
    place = torch.arange(labels.shape[0], device=labels.device)
    return torch.where(place < labels.shape[0] - count, labels.clamp(max=0), labels)


def _torchvision_heads(model: torch.nn.Module) -> bool:
    heads = sys.modules.get("torchvision.models.detection.roi_heads")
    return heads is not None and any(isinstance(module, heads.RoIHeads) for module in model.modules())


def _detectron2_heads(model: torch.nn.Module) -> bool:
    heads = sys.modules.get("detectron2.modeling.roi_heads.roi_heads")
    return heads is not None and any(isinstance(module, heads.ROIHeads) for module in model.modules())


def _blueprints(model: torch.nn.Module) -> list[Any]:
    """Modules that lay their samples out themselves, and are told how full."""
    return [module for module in model.modules() if hasattr(module, "full_samplers")]
