"""ResNet stages of real Detectron2 models that are computed again in backward."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from detectron2_models import OF_DETECTRON2, EventStorage, apart, build, config, images

from oomproof.changes.detectron2 import checkpoint_stages

pytestmark = [pytest.mark.slow, OF_DETECTRON2]


@pytest.fixture
def same_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Samplers take the first candidates of an image instead of random ones, whichever batch it is in."""
    monkeypatch.setattr(torch, "randperm", lambda n, **named: torch.arange(n, device=named.get("device")))


def saved_bytes(model: torch.nn.Module, batch: list[Any]) -> int:
    """One step; returns the bytes that forward keeps for backward, each storage counted once."""
    kept: dict[int, int] = {}
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.untyped_storage().data_ptr() not in weights:
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with EventStorage(0):
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            losses = sum(model(batch).values())
        before = sum(kept.values())
        losses.backward()
    return before


FPN = "backbone.bottom_up"


@pytest.mark.parametrize("norm", ["FrozenBN", "BN"])
@pytest.mark.parametrize(
    ("kind", "stages", "paths"),
    [
        ("mask", "res3,res4", [f"{FPN}.res3", f"{FPN}.res4"]),
        ("mask", f"res3,{FPN}.res5", [f"{FPN}.res3", f"{FPN}.res5"]),
        ("c4", ["res4", "res5"], ["backbone.res4", "roi_heads.res5"]),
    ],
)
def test_stages_that_are_computed_again(
    kind: str, stages: Any, paths: list[str], norm: str, same_samples: None
) -> None:
    cfg = config(kind)
    cfg.MODEL.RESNETS.NORM = norm
    plain, thrifty = build(cfg), build(cfg)
    names = list(thrifty.state_dict())
    assert checkpoint_stages(thrifty, stages) == paths
    assert list(thrifty.state_dict()) == names
    batch = images(kind)[:2]
    more, less = saved_bytes(plain, batch), saved_bytes(thrifty, batch)
    assert less < 0.8 * more
    assert apart(thrifty, plain) < 1e-6
    for mine, theirs in zip(thrifty.buffers(), plain.buffers(), strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize(
    ("kind", "stages"),
    [
        ("mask", "res3:1,res4:2"),
        ("mask", "proposal_generator.rpn_head,backbone:1,roi_heads.mask_head"),
        ("retinanet", "backbone,head"),
    ],
)
def test_modules_that_plans_name(kind: str, stages: str, same_samples: None) -> None:
    plain, thrifty = build(config(kind)), build(config(kind))
    checkpoint_stages(thrifty, stages)
    for model in (plain, thrifty):
        saved_bytes(model, images(kind)[:3])
    assert apart(thrifty, plain) < 1e-4
