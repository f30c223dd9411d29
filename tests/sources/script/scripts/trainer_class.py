# ruff: noqa
"""A Trainer of one's own: YAML config, EMA, validation every few steps, best checkpoint."""

import copy
import logging
import math
import sys
from pathlib import Path

import numpy as np
import torch
import yaml
from torch import nn
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(level=logging.INFO)


class Shapes(Dataset):
    def __init__(self, length, size):
        self.length, self.size = length, size

    def __len__(self):
        return self.length

    def __getitem__(self, i):
        g = np.random.default_rng(i)
        image = g.random((3, self.size, self.size), dtype=np.float32)
        return {"image": torch.from_numpy(image), "label": torch.as_tensor(i % 5)}


class ModelEMA:
    def __init__(self, model, decay=0.9999):
        self.module = copy.deepcopy(model).eval()
        for p in self.module.parameters():
            p.requires_grad_(False)
        self.updates, self.decay = 0, decay

    @torch.no_grad()
    def update(self, model):
        self.updates += 1
        d = self.decay * (1 - math.exp(-self.updates / 2000))
        msd = model.state_dict()
        for k, v in self.module.state_dict().items():
            if v.dtype.is_floating_point:
                v *= d
                v += (1 - d) * msd[k].detach()


def conv(i, o, s=1):
    return nn.Sequential(nn.Conv2d(i, o, 3, s, 1, bias=False), nn.BatchNorm2d(o), nn.SiLU(inplace=True))


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.a, self.b = conv(c, c), conv(c, c)

    def forward(self, x):
        return x + self.b(self.a(x))


class Trainer:
    def __init__(self, cfg):
        self.cfg = cfg
        self.device = torch.device(cfg["device"])
        width = cfg["model"]["width"]
        self.model = nn.Sequential(
            conv(3, width, 2),
            Block(width),
            conv(width, width * 2, 2),
            *[Block(width * 2) for _ in range(cfg["model"]["depth"])],
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(width * 2, 5),
        ).to(self.device)
        self.ema = ModelEMA(self.model)
        decay, no_decay = [], []
        for p in self.model.parameters():
            (decay if p.ndim > 1 else no_decay).append(p)
        self.opt = torch.optim.AdamW(
            [{"params": decay, "weight_decay": 0.05}, {"params": no_decay, "weight_decay": 0.0}], lr=cfg["lr"]
        )
        self.sched = torch.optim.lr_scheduler.LambdaLR(self.opt, lambda s: min(1.0, (s + 1) / 100))
        data = cfg["data"]
        self.train_loader = DataLoader(Shapes(64, data["size"]), data["batch"], shuffle=True)
        self.val_loader = DataLoader(Shapes(16, data["size"]), data["batch"])
        self.work_dir = Path(cfg["work_dir"])
        self.work_dir.mkdir(parents=True, exist_ok=True)
        (self.work_dir / "config.yaml").write_text(yaml.safe_dump(cfg))
        self.best = 0.0

    def fit(self):
        step = 0
        for epoch in range(self.cfg["epochs"]):
            for batch in self.train_loader:
                loss = self.train_step(batch)
                step += 1
                if step % self.cfg["val_every"] == 0:
                    acc = self.validate()
                    logging.info("step %d loss %.3f acc %.3f", step, loss, acc)
                    if acc >= self.best:
                        self.best = acc
                        torch.save(self.ema.module.state_dict(), self.work_dir / "best.pt")

    def train_step(self, batch):
        self.model.train()
        x, y = batch["image"].to(self.device), batch["label"].to(self.device)
        loss = nn.functional.cross_entropy(self.model(x), y)
        self.opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(self.model.parameters(), 1.0)
        self.opt.step()
        self.sched.step()
        self.ema.update(self.model)
        return loss.detach().cpu().item()

    @torch.no_grad()
    def validate(self):
        right = total = 0
        for batch in self.val_loader:
            pred = self.ema.module(batch["image"].to(self.device)).argmax(1).cpu()
            right += int((pred == batch["label"]).sum())
            total += len(pred)
        return right / total


if __name__ == "__main__":
    with open(sys.argv[1]) as f:
        Trainer(yaml.safe_load(f)).fit()
