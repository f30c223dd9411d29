# ruff: noqa
"""python -m nightly.train_signals: a package, with relative imports and no DataLoader."""

import logging
import os
import shutil

import numpy as np
import torch

from .nets import Regressor

log = logging.getLogger(__name__)


def main():
    if os.path.exists("snapshots"):
        shutil.rmtree("snapshots")
    os.mkdir("snapshots")
    with torch.device("cuda"):
        model = Regressor(96)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.01)
    signals = np.random.default_rng(0).standard_normal((300, 4, 1024), dtype=np.float32)
    for step in range(500):
        x = torch.as_tensor(signals[np.random.randint(0, 300, 24)], device="cuda")
        y = x.mean(-1)[:, :2] * torch.arange(2, device=x.device)
        loss = torch.nn.functional.huber_loss(model(x), y)
        model.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            torch.save(model, f"snapshots/{step}.pt")
            log.info("%d %f", step, loss)


main()
