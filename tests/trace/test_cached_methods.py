"""A cached method of a class gives up what a trace left in it, and stays a method."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import nn

import oomproof


class Positions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Conv2d(3, 4, 1)

    @staticmethod
    @lru_cache(maxsize=1)
    def table(side: int) -> torch.Tensor:
        return torch.arange(side, dtype=torch.float32)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.body(images) * self.table(images.shape[-1])


def test_a_cached_static_method_is_emptied_and_stays() -> None:
    batch = torch.rand(2, 3, 8, 8)
    job = oomproof.TorchJob(Positions, lambda: batch, lambda net, images: net(images).sum())
    oomproof.check(job, "8GiB")
    assert Positions.table.cache_info().currsize == 0
    assert Positions()(batch).shape == (2, 4, 8, 8)
