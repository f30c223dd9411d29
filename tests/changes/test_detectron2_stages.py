"""Checkpointing of ResNet stages and accumulation on Detectron2's models, by their blueprints: without Detectron2."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import nn

from oomproof.changes.detectron2 import accumulated_step, checkpoint_stages
from oomproof.errors import InputError
from oomproof.sources.detectron2.blueprint.batch import make_batch
from oomproof.sources.detectron2.blueprint.build import build_blueprint
from oomproof.sources.detectron2.config.config import read

SIDE = 64
THIN = [
    *("MODEL.RESNETS.DEPTH", 18, "MODEL.RESNETS.RES2_OUT_CHANNELS", 64, "MODEL.FPN.OUT_CHANNELS", 16),
    *(
        "MODEL.ROI_HEADS.NUM_CLASSES",
        4,
        "MODEL.ROI_HEADS.BATCH_SIZE_PER_IMAGE",
        16,
        "MODEL.RPN.BATCH_SIZE_PER_IMAGE",
        16,
    ),
    *("MODEL.RPN.PRE_NMS_TOPK_TRAIN", 60, "MODEL.RPN.POST_NMS_TOPK_TRAIN", 30, "MODEL.ROI_BOX_HEAD.FC_DIM", 16),
    *("MODEL.ROI_MASK_HEAD.CONV_DIM", 8, "MODEL.ROI_MASK_HEAD.NUM_CONV", 1),
]
MASK_RCNN = "COCO-InstanceSegmentation/mask_rcnn_R_50_FPN_1x.yaml"
STAGES = "backbone.bottom_up"


def model(*overrides: Any) -> tuple[nn.Module, list[dict[str, Any]]]:
    """A Mask R-CNN of thin layers, and four images."""
    config = read(MASK_RCNN, [str(each) for each in (*THIN, *overrides)]).values
    torch.manual_seed(0)
    made = build_blueprint(config).train()
    with torch.no_grad():
        for layer in made.modules():
            if isinstance(layer, nn.Conv2d):
                layer.weight.copy_(torch.randn_like(layer.weight) * 0.7 / layer.weight[0].numel() ** 0.5)
    images = make_batch(config, 4, SIDE, SIDE, 3)
    for image in images:
        image["image"] = torch.randint(0, 255, (3, SIDE, SIDE), dtype=torch.uint8)
    return made, images


def gradients(net: nn.Module, images: list[dict[str, Any]]) -> int:
    """One backward pass; returns the bytes that forward kept for it, weights left out."""
    weights = {parameter.untyped_storage().data_ptr() for parameter in net.parameters()}
    kept: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.untyped_storage().data_ptr() not in weights:
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        losses = sum(net(images).values())
    before = sum(kept.values())
    losses.backward()
    return before


def apart(first: nn.Module, second: nn.Module) -> float:
    """The largest relative difference of any gradient."""
    worst = 0.0
    for mine, other in zip(first.parameters(), second.parameters(), strict=True):
        assert (mine.grad is None) == (other.grad is None)
        if mine.grad is not None and other.grad.norm() > 1e-7:
            worst = max(worst, ((mine.grad - other.grad).norm() / other.grad.norm()).item())
    return worst


@pytest.mark.slow
@pytest.mark.parametrize("norm", ["FrozenBN", "BN"])
@pytest.mark.parametrize("stages", ["res3,res4", ["res3", f"{STAGES}.res5"]])
def test_stages_are_computed_again_with_the_same_gradients(stages: Any, norm: str) -> None:
    (plain, images), (thrifty, _) = model("MODEL.RESNETS.NORM", norm), model("MODEL.RESNETS.NORM", norm)
    names = list(thrifty.state_dict())
    paths = checkpoint_stages(thrifty, stages)
    assert paths == [f"{STAGES}.res3", f"{STAGES}.res4" if stages == "res3,res4" else f"{STAGES}.res5"]
    more, less = gradients(plain, images), gradients(thrifty, images)
    assert less < 0.8 * more
    assert apart(thrifty, plain) < 1e-6
    assert list(thrifty.state_dict()) == names  # a checkpoint file fits as before
    for mine, theirs in zip(thrifty.buffers(), plain.buffers(), strict=True):
        assert torch.equal(mine, theirs)  # running statistics are moved once


@pytest.mark.slow
def test_a_stage_one_image_at_a_time_keeps_the_loss_on_the_whole_batch() -> None:
    (plain, images), (thrifty, _) = model(), model()
    checkpoint_stages(thrifty, "res3:1,res4:2")
    gradients(plain, images)
    gradients(thrifty, images)
    assert apart(thrifty, plain) < 1e-4


@pytest.mark.slow
def test_where_every_sampler_is_full_micro_batches_are_one_batch() -> None:
    """As in most iterations of a training: then each loss has the same divisor in every micro-batch."""
    (whole, images), (parts, _) = model(), model()
    gradients(whole, images)

    class Trainer:
        model = parts
        optimizer = torch.optim.SGD(parts.parameters(), lr=0.0)
        _data_loader_iter = itertools.cycle([image] for image in images)

        @staticmethod
        def _write_metrics(losses: dict[str, torch.Tensor], data_time: float) -> None:
            assert set(losses) == {"loss_cls", "loss_box_reg", "loss_mask", "loss_rpn_cls", "loss_rpn_loc"}

    accumulated_step(Trainer, 4)
    assert apart(parts, whole) < 1e-4


def test_a_stage_inside_a_parallel_model() -> None:
    net = nn.Module()
    net.module = nn.Sequential()
    net.module.backbone = nn.Sequential()
    net.module.backbone.res4 = nn.Sequential(nn.Linear(2, 2))
    assert checkpoint_stages(net, "backbone.res4") == ["module.backbone.res4"]


def test_a_whole_path_is_that_module_alone() -> None:
    net = nn.Module()
    net.head, net.other = nn.Linear(2, 2), nn.Sequential()
    net.other.head = nn.Linear(2, 2)
    assert checkpoint_stages(net, "head") == ["head"]
    assert checkpoint_stages(net, ["other.head"]) == ["other.head"]


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        ("res9", f"no stage 'res9'; it has {STAGES}.stem, {STAGES}.res2"),
        ("", "no stage ''"),
        ([], "name at least one stage"),
        ("res4:0", "must end in a number of images from 1 on"),
        (f"res4,{STAGES}", "hold the same modules"),
        ("bottom_up,bottom_up", "hold the same modules"),
    ],
)
def test_stages_that_are_not_there(stages: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        checkpoint_stages(model()[0], stages)
