# ruff: noqa
import torch
from torch import nn


class Regressor(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv1d(4, width, 7, padding=3), nn.GroupNorm(8, width), nn.GELU())
        self.body = nn.Sequential(*[self.block(width) for _ in range(4)])
        self.head = nn.Linear(width, 2)
        self.register_buffer("scale", torch.ones(2))

    @staticmethod
    def block(width):
        return nn.Sequential(nn.Conv1d(width, width, 5, padding=2), nn.GroupNorm(8, width), nn.GELU())

    def forward(self, x):
        return self.head(self.body(self.stem(x)).mean(-1)) * self.scale
