# ruff: noqa
"""SimCLR: two views, a loss over all pairs of the batch, an optimizer of its own."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torchvision
from torch.utils.data import DataLoader, Dataset

device = "cuda" if torch.cuda.is_available() else "cpu"


class LARS(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.9, eta=0.001):
        super().__init__(params, dict(lr=lr, momentum=momentum, eta=eta))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                d = p.grad
                w_norm, g_norm = torch.norm(p), torch.norm(d)
                one = torch.ones_like(w_norm)
                trust = torch.where(w_norm > 0, torch.where(g_norm > 0, group["eta"] * w_norm / g_norm, one), one)
                d = d * trust
                state = self.state[p]
                if "mu" not in state:
                    state["mu"] = torch.zeros_like(p)
                state["mu"].mul_(group["momentum"]).add_(d)
                p.add_(state["mu"], alpha=-group["lr"])


class Views(Dataset):
    def __len__(self):
        return 256

    def __getitem__(self, i):
        g = np.random.default_rng(i)
        return [torch.from_numpy(g.standard_normal((3, 64, 64), dtype=np.float32)) for _ in range(2)], i


def info_nce(features, temperature=0.07):
    n = features.shape[0] // 2
    labels = torch.cat([torch.arange(n) for _ in range(2)], dim=0)
    labels = (labels.unsqueeze(0) == labels.unsqueeze(1)).float().to(device)
    features = F.normalize(features, dim=1)
    similarity = torch.matmul(features, features.T)
    mask = torch.eye(labels.shape[0], dtype=torch.bool).to(device)
    labels = labels[~mask].view(labels.shape[0], -1)
    similarity = similarity[~mask].view(similarity.shape[0], -1)
    positives = similarity[labels.bool()].view(labels.shape[0], -1)
    negatives = similarity[~labels.bool()].view(similarity.shape[0], -1)
    logits = torch.cat([positives, negatives], dim=1) / temperature
    return logits, torch.zeros(logits.shape[0], dtype=torch.long).to(device)


backbone = torchvision.models.resnet18(num_classes=128)
backbone.fc = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 128))
model = backbone.to(device)
optimizer = LARS(model.parameters(), lr=0.3)
criterion = nn.CrossEntropyLoss().to(device)
for epoch in range(200):
    for images, _ in DataLoader(Views(), batch_size=12, shuffle=True, drop_last=True):
        images = torch.cat(images, dim=0).to(device)
        logits, labels = info_nce(model(images))
        loss = criterion(logits, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print("loss", loss.item(), "top1", (logits.argmax(1) == labels).float().mean().item())
