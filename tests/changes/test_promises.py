"""What «identical» means: every gradient, buffer and updated parameter as in the plain step.

The plain step is written out here by hand. Where another number of images at a time changes rounding a little, both run
in double precision, so that rounding can neither hide a mistake nor flip a decision of matching. Where a change is not
identical, a test says so with a number, so that nobody promises it.
"""

from __future__ import annotations

import copy
from functools import cache
from typing import Any
from unittest.mock import patch

import pytest
import torch
from promise_models import CASES, fresh
from torch import nn, optim

from oomproof.changes.torch import matching
from oomproof.changes.torch.losses import total
from oomproof.changes.torch.step import Step
from oomproof.errors import InputError
from thorough import pairwise, thorough_but

IDENTICAL = 1e-5
"""relative"""
ROUNDING = 1e-12
"""A gradient that is so small a part of the largest is 0 in truth: that of the bias of keys in attention, for one."""
DIFFERENT = 1e-3

RECOMPUTED = {
    "Faster R-CNN": ["nonreentrant", "backbone.body.layer2,backbone.fpn,rpn.head,roi_heads.box_head"],
    "Mask R-CNN": ["backbone.body.layer4.0,roi_heads.mask_head,roi_heads.box_head,roi_heads.mask_predictor"],
    "RetinaNet": ["backbone,head.classification_head,head.regression_head"],
    "FCOS": ["backbone.body.layer3,backbone.fpn,head.classification_head,head.regression_head"],
    "SSD": ["backbone.first,backbone.second,head.classification_head"],
    "DETR": ["nonreentrant", "model.backbone,model.encoder,model.decoder.layers.1"],
    "BatchNorm": ["layer1", "layer1,layer2,layer3.0,fc", "conv1,bn1,layer4"],
    "GroupNorm": ["layer1,layer2,layer3.0,fc"],
}
CHUNKED = {
    "Faster R-CNN": ["backbone:1", "backbone:3,roi_heads.box_head:7"],
    "Mask R-CNN": ["backbone:2,roi_heads.mask_head:5"],
    "RetinaNet": ["backbone:2,head.classification_head:1", "backbone.body.layer1:1,backbone.body.layer2:3"],
    "FCOS": ["backbone:1,head.regression_head:2"],
    "SSD": ["backbone:1"],
    "DETR": ["model.backbone:1", "model.backbone:3"],
    "GroupNorm": ["layer1:1,layer2:3", "conv1:2,layer3:2,fc"],
}


def optimizer_for(model: nn.Module) -> optim.Optimizer:
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return optim.SGD(trained, lr=1e-3, momentum=0.9, weight_decay=1e-4, foreach=False)


def plain(case: str, steps: int = 1, dropout: bool = True) -> nn.Module:
    return _plain(case, steps, dropout, torch.get_default_dtype())


@cache
def _plain(case: str, steps: int, dropout: bool, dtype: torch.dtype) -> nn.Module:
    model = copy.deepcopy(fresh(case, dropout, dtype))
    optimizer = optimizer_for(model)
    for step in range(steps):
        torch.manual_seed(step)  # samplers and dropout draw
        optimizer.zero_grad()
        total(CASES[case].loss(model, CASES[case].batch())).backward()
        optimizer.step()
    return model


def fitted(case: str, settings: dict[str, Any], steps: int = 1, dropout: bool = True) -> nn.Module:
    model = copy.deepcopy(fresh(case, dropout, torch.get_default_dtype()))
    step = Step(model, optimizer_for(model), CASES[case].loss, settings)
    for number in range(steps):
        torch.manual_seed(number)
        step(CASES[case].batch())
    return model


def farthest(expected: nn.Module, found: nn.Module) -> float:
    """The largest relative difference of any gradient, parameter or buffer."""
    worst = 0.0
    names = dict(found.named_parameters())
    largest = max(p.grad.norm().item() for p in expected.parameters() if p.grad is not None)
    for name, parameter in expected.named_parameters():
        other = names.pop(name)
        assert (parameter.grad is None) == (other.grad is None), f"{name}: a gradient in only one of both"
        if parameter.grad is not None:
            worst = max(worst, apart(parameter.grad, other.grad, ROUNDING * largest))
        worst = max(worst, apart(parameter, other))
    assert not names
    for (name, buffer), (same, other) in zip(expected.named_buffers(), found.named_buffers(), strict=True):
        assert name == same
        worst = max(worst, apart(buffer.double(), other.double()))
    return worst


@torch.no_grad()
def apart(expected: torch.Tensor, found: torch.Tensor, rounding: float = 0.0) -> float:
    difference = (expected - found).norm().item()
    return difference / max(expected.norm().item(), rounding) if difference > rounding else 0.0


def pairs(table: dict[str, list[str]], slowest: str) -> list[Any]:
    """Cases and their values; those of the slowest are left to ``make test-all``."""
    return [
        pytest.param(case, value, id=f"{case}-{value}", marks=[pytest.mark.thorough] * (case == slowest))
        for case, values in table.items()
        for value in values
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("case", "modules"), pairs(RECOMPUTED, slowest="Mask R-CNN"))
def test_recomputing_is_identical(case: str, modules: str) -> None:
    assert farthest(plain(case), fitted(case, {"checkpoint": modules})) <= IDENTICAL


@pytest.mark.slow
@pytest.mark.usefixtures("double_precision")
@pytest.mark.parametrize(("case", "modules"), pairs(CHUNKED, slowest="Mask R-CNN"))
def test_a_chunked_body_is_identical(case: str, modules: str) -> None:
    assert farthest(plain(case), fitted(case, {"checkpoint": modules})) <= IDENTICAL


@pytest.mark.slow
@pytest.mark.parametrize(
    "case", thorough_but(["RetinaNet", "SSD"], ["Faster R-CNN", "Mask R-CNN", "RetinaNet", "FCOS", "SSD"])
)
def test_chunked_matching_is_identical(case: str) -> None:
    with patch.object(matching, "PAIRS", 500):  # so that images this small take many parts
        assert farthest(plain(case), fitted(case, {"matching": "chunked"})) == 0


@pytest.mark.slow
@pytest.mark.parametrize("case", thorough_but(["Faster R-CNN", "DETR", "BatchNorm"], CASES))
def test_what_concerns_gradients_and_state_is_identical(case: str) -> None:
    settings = {"zero_grad": "before_backward", "optimizer_state": "host", "update": "plain"}
    assert farthest(plain(case, 2), fitted(case, settings, 2)) <= IDENTICAL  # the second starts from state


@pytest.mark.parametrize(
    ("zero_grad", "update", "state", "case"),
    pairwise(
        ["before_forward", "before_backward", "keep"],
        ["auto", "plain", "foreach", "fused"],
        ["device", "host"],
        ["SSD", "GroupNorm"],
    ),
)
def test_every_form_of_update_is_identical(case: str, state: str, update: str, zero_grad: str) -> None:
    settings = {"zero_grad": zero_grad, "optimizer_state": state, "update": update}
    assert farthest(plain(case, 2), fitted(case, settings, 2)) <= IDENTICAL


@pytest.mark.slow
@pytest.mark.usefixtures("double_precision")
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("case", ["RetinaNet", "GroupNorm"])
def test_accumulation_is_identical_where_images_are_averaged(case: str, batch: int) -> None:
    """RetinaNet divides each image's loss by that image's own anchors, and then averages over images."""
    found = fitted(case, {"batch": batch}, dropout=False)
    assert farthest(plain(case, dropout=False), found) <= IDENTICAL


@pytest.mark.slow
@pytest.mark.parametrize("case", ["BatchNorm", "FCOS", "SSD", "DETR", "Mask R-CNN", "Faster R-CNN"])
def test_accumulation_is_not_identical_elsewhere(case: str) -> None:
    """BatchNorm sees other images; FCOS, SSD and DETR divide by what the whole batch has; R-CNN samples among the
    proposals of the whole batch."""
    found = fitted(case, {"batch": 2}, steps=1, dropout=False)
    assert farthest(plain(case, 1, dropout=False), found) > DIFFERENT


@pytest.mark.slow
def test_chunks_of_a_trained_batchnorm_are_refused() -> None:
    with pytest.raises(
        InputError, match=r"layer1 cannot run a few images at a time, since layer1\.0\.bn1 normalises over"
    ):
        fitted("BatchNorm", {"checkpoint": "layer1:2"})
    frozen = {"freeze_batchnorm": True}
    together = fitted("BatchNorm", frozen)
    assert farthest(together, fitted("BatchNorm", {**frozen, "checkpoint": "layer1:2"})) <= IDENTICAL
