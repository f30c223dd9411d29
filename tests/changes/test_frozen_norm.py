"""Frozen batch normalisation stays as it is, whatever the training does to the model."""

from __future__ import annotations

import copy

import torch
from torch import nn

from oomproof.changes.torch.frozen_norm import freeze_batchnorm


def net() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Sequential(nn.ReLU(), nn.BatchNorm2d(4)))


def test_it_stays_frozen_through_training() -> None:
    model = net()
    assert freeze_batchnorm(model) == ["1", "2.1"]
    model.train()
    before = copy.deepcopy(model.state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.rand(2, 3, 8, 8)).sum().backward()
    optimizer.step()
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {"0.weight", "0.bias"}
    assert model.training and not model[1].training


def test_a_copy_is_frozen_too_and_is_no_part_of_the_first() -> None:
    model = net()
    freeze_batchnorm(model)
    twin = copy.deepcopy(model)
    assert twin.train()[1].train() is twin[1]
    assert not twin[1].training


def test_layers_without_statistics_have_nothing_to_keep() -> None:
    model = nn.Sequential(nn.BatchNorm2d(4, track_running_stats=False), nn.GroupNorm(2, 4))
    assert freeze_batchnorm(model) == []
    assert all(parameter.requires_grad for parameter in model.parameters())
