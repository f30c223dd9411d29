"""A model of your own: any nn.Module, AdamW, and a loss.

oomproof check examples/classifier.py:job --on 8GiB --sweep batch=16,32,64
"""

import torch
from torch import nn

from oomproof import TorchJob


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(width, width, 7, padding=3, groups=width),
            nn.GroupNorm(1, width),
            nn.Conv2d(width, 4 * width, 1),
            nn.GELU(),
            nn.Conv2d(4 * width, width, 1),
        )

    def forward(self, x):
        return x + self.body(x)


class Net(nn.Module):
    def __init__(self, width, depth, classes):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 4, stride=4)
        # Repeated blocks in a Sequential or ModuleList: --set checkpoint=nonreentrant finds them by itself.
        self.blocks = nn.Sequential(*(Block(width) for _ in range(depth)))
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


def job(batch=64, side=224, width=128, depth=12, classes=10):
    # Whatever may change becomes a parameter: `--set depth=24` then asks about a deeper network.
    return TorchJob(
        model=lambda: Net(width, depth, classes),
        batch=lambda: (torch.rand(batch, 3, side, side), torch.randint(0, classes, (batch,))),
        loss=lambda net, data: nn.functional.cross_entropy(net(data[0]), data[1]),
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=3e-4),
        mean_over_images=True,  # what cross_entropy gives: micro-batches then leave the gradients as they are
    )
