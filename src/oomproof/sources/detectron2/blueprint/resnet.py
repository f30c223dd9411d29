"""ResNet and ResNeXt backbones with Detectron2's stages: stem, res2 ... res5."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from oomproof.errors import CannotDo, InputError
from oomproof.sources.detectron2.blueprint.deformable import DeformableConv
from oomproof.sources.detectron2.blueprint.layers import Conv2d, Feature, freeze, norm

BLOCKS = {
    18: (2, 2, 2, 2),
    34: (3, 4, 6, 3),
    50: (3, 4, 6, 3),
    101: (3, 4, 23, 3),
    152: (3, 8, 36, 3),
}
_BASIC = (18, 34)
_OFFSETS, _OFFSETS_AND_MASK = 18, 27
"""channels that steer the nine taps of a deformable filter"""


class BasicStem(nn.Module):
    def __init__(self, outputs: int, kind: str) -> None:
        super().__init__()
        self.conv1 = Conv2d(3, outputs, 7, stride=2, bias=False, norm=norm(kind, outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu_(self.conv1(x))
        return F.max_pool2d(x, kernel_size=3, stride=2, padding=1)


class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions, for ResNet-18 and -34."""

    def __init__(self, inputs: int, outputs: int, stride: int, kind: str) -> None:
        super().__init__()
        self.shortcut = _shortcut(inputs, outputs, stride, kind)
        self.conv1 = Conv2d(inputs, outputs, 3, stride=stride, bias=False, norm=norm(kind, outputs))
        self.conv2 = Conv2d(outputs, outputs, 3, bias=False, norm=norm(kind, outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = F.relu_(self.conv1(x))
        out = self.conv2(out)
        out += x if self.shortcut is None else self.shortcut(x)
        return F.relu_(out)


class BottleneckBlock(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int, kind: str, *, form: BottleneckForm) -> None:
        super().__init__()
        inner, dilation = form.inner, form.dilation
        first, second = (stride, 1) if form.stride_in_1x1 else (1, stride)
        self.modulated = form.deform_modulated
        self.shortcut = _shortcut(inputs, outputs, stride, kind)
        self.conv1 = Conv2d(inputs, inner, 1, stride=first, bias=False, norm=norm(kind, inner))
        self.conv2: nn.Module
        self.conv2_offset: nn.Module | None = None
        if form.deform_groups:
            steering = (_OFFSETS_AND_MASK if self.modulated else _OFFSETS) * form.deform_groups
            self.conv2_offset = Conv2d(inner, steering, 3, stride=second, dilation=dilation)
            self.conv2 = DeformableConv(inner, inner, form.groups, norm(kind, inner))
        else:
            self.conv2 = Conv2d(
                inner,
                inner,
                3,
                stride=second,
                dilation=dilation,
                groups=form.groups,
                bias=False,
                norm=norm(kind, inner),
            )
        self.conv3 = Conv2d(inner, outputs, 1, bias=False, norm=norm(kind, outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = F.relu_(self.conv1(x))
        out = F.relu_(self._middle(out))
        out = self.conv3(out)
        shortcut = x if self.shortcut is None else self.shortcut(x)
        out += shortcut
        return F.relu_(out)

    def _middle(self, x: torch.Tensor) -> Any:
        if self.conv2_offset is None:
            return self.conv2(x)
        steering = self.conv2_offset(x)
        if not self.modulated:
            return self.conv2(x, steering)
        across, down, mask = torch.chunk(steering, 3, dim=1)
        return self.conv2(x, torch.cat((across, down), dim=1), mask.sigmoid())


class BottleneckForm:
    """What the bottlenecks of one stage have in common."""

    def __init__(self, config: Mapping[str, Any], stage: int) -> None:
        self.groups = int(config["MODEL.RESNETS.NUM_GROUPS"])
        self.inner = self.groups * int(config["MODEL.RESNETS.WIDTH_PER_GROUP"]) << (stage - 2)
        self.stride_in_1x1 = bool(config["MODEL.RESNETS.STRIDE_IN_1X1"])
        self.dilation = int(config["MODEL.RESNETS.RES5_DILATION"]) if stage == 5 else 1
        deformed = config["MODEL.RESNETS.DEFORM_ON_PER_STAGE"][stage - 2]
        self.deform_groups = int(config["MODEL.RESNETS.DEFORM_NUM_GROUPS"]) if deformed else 0
        self.deform_modulated = bool(config["MODEL.RESNETS.DEFORM_MODULATED"])


class ResNet(nn.Module):
    """``features`` says what each of its outputs is like."""

    size_divisibility = 0

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        depth, kind = config["MODEL.RESNETS.DEPTH"], config["MODEL.RESNETS.NORM"]
        _refuse_what_detectron2_refuses(config)
        self.wanted = tuple(config["MODEL.RESNETS.OUT_FEATURES"])
        inputs, outputs = int(config["MODEL.RESNETS.STEM_OUT_CHANNELS"]), int(config["MODEL.RESNETS.RES2_OUT_CHANNELS"])
        self.stem = BasicStem(inputs, kind)
        found = {"stem": Feature(inputs, 4)}
        stride = 4
        self.stages = [f"res{stage}" for stage in range(2, 1 + max(_stage(name) for name in self.wanted))]
        for stage, name in enumerate(self.stages, 2):
            step = 1 if stage == 2 or (stage == 5 and config["MODEL.RESNETS.RES5_DILATION"] == 2) else 2
            blocks = BLOCKS[depth][stage - 2]
            made = make_stage(config, stage, blocks=blocks, inputs=inputs, outputs=outputs, stride=step)
            self.add_module(name, made)
            stride *= step
            found[name] = Feature(outputs, stride)
            inputs, outputs = outputs, 2 * outputs
        self.features = {name: found[name] for name in self.wanted}
        frozen = int(config["MODEL.BACKBONE.FREEZE_AT"])
        for stage, name in enumerate(("stem", *self.stages), 1):
            if frozen >= stage:
                freeze(self.get_submodule(name))

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        found = {}
        for name in ("stem", *self.stages):
            x = self.get_submodule(name)(x)
            if name in self.wanted:
                found[name] = x
        return found


def _refuse_what_detectron2_refuses(config: Mapping[str, Any]) -> None:
    depth, dilation = config["MODEL.RESNETS.DEPTH"], config["MODEL.RESNETS.RES5_DILATION"]
    if depth not in BLOCKS:
        known = ", ".join(map(str, BLOCKS))
        raise InputError(f"MODEL.RESNETS.DEPTH must be one of {known}, as in Detectron2; got {depth}")
    if dilation not in (1, 2):
        raise InputError(f"MODEL.RESNETS.RES5_DILATION must be 1 or 2, as in Detectron2; got {dilation}")
    if depth not in _BASIC:
        return
    wanted = {"RES2_OUT_CHANNELS": 64, "RES5_DILATION": 1, "NUM_GROUPS": 1, "DEFORM_ON_PER_STAGE": [False] * 4}
    for name, value in wanted.items():
        given = config[f"MODEL.RESNETS.{name}"]
        if (list(given) if isinstance(value, list) else given) != value:
            raise CannotDo(f"MODEL.RESNETS.DEPTH {depth} goes with MODEL.RESNETS.{name} {value} only; got {given}")


def make_stage(
    config: Mapping[str, Any], stage: int, *, blocks: int, inputs: int, outputs: int, stride: int
) -> nn.Sequential:
    kind = config["MODEL.RESNETS.NORM"]
    made: list[nn.Module] = []
    for block in range(blocks):
        before, step = (inputs, stride) if block == 0 else (outputs, 1)
        if config["MODEL.RESNETS.DEPTH"] in _BASIC:
            made.append(BasicBlock(before, outputs, step, kind))
        else:
            made.append(BottleneckBlock(before, outputs, step, kind, form=BottleneckForm(config, stage)))
    return nn.Sequential(*made)


def _shortcut(inputs: int, outputs: int, stride: int, kind: str) -> nn.Module | None:
    if inputs == outputs:
        return None
    return Conv2d(inputs, outputs, 1, stride=stride, bias=False, norm=norm(kind, outputs))


def _stage(name: str) -> int:
    known = {"stem": 1, "res2": 2, "res3": 3, "res4": 4, "res5": 5}
    if name not in known:
        raise InputError(f"MODEL.RESNETS.OUT_FEATURES: expected names out of {', '.join(known)}; got '{name}'")
    return known[name]
