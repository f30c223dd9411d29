# ruff: noqa
"""torchvision's detector with a loop in the style of its reference scripts."""

import math
import sys

import numpy as np
import torch
import torchvision
from torch.utils.data import DataLoader, Dataset


class Boxes(Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, i):
        g = np.random.default_rng(i)
        image = torch.from_numpy(g.random((3, 160, 192), dtype=np.float32))
        corner = g.integers(0, 80, (6, 2))
        size = g.integers(20, 70, (6, 2))
        boxes = torch.as_tensor(np.concatenate([corner, corner + size], 1), dtype=torch.float32)
        return image, {"boxes": boxes, "labels": torch.from_numpy(g.integers(1, 5, 6)), "image_id": i}


def collate_fn(batch):
    return tuple(zip(*batch))


def train_one_epoch(model, optimizer, data_loader, device, epoch, scaler=None):
    model.train()
    for images, targets in data_loader:
        images = [image.to(device) for image in images]
        targets = [{k: v.to(device) if isinstance(v, torch.Tensor) else v for k, v in t.items()} for t in targets]
        loss_dict = model(images, targets)
        losses = sum(loss for loss in loss_dict.values())
        loss_value = losses.item()
        if not math.isfinite(loss_value):
            print(f"Loss is {loss_value}, stopping training")
            sys.exit(1)
        optimizer.zero_grad()
        losses.backward()
        optimizer.step()


@torch.inference_mode()
def evaluate(model, loader, device):
    model.eval()
    for images, targets in loader:
        outputs = model([image.to(device) for image in images])
        outputs = [{k: v.to(torch.device("cpu")) for k, v in t.items()} for t in outputs]
        print(sum(len(o["boxes"]) for o in outputs))


def main():
    device = torch.device("cuda")
    model = torchvision.models.detection.retinanet_resnet50_fpn(
        weights=None,
        weights_backbone=torchvision.models.ResNet50_Weights.DEFAULT,
        num_classes=5,
        min_size=160,
        max_size=192,
    )
    model.to(device)
    params = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(params, lr=0.005, momentum=0.9, weight_decay=0.0005)
    lr_scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[16, 22], gamma=0.1)
    loader = DataLoader(Boxes(), batch_size=2, shuffle=True, collate_fn=collate_fn, num_workers=0)
    for epoch in range(26):
        train_one_epoch(model, optimizer, loader, device, epoch)
        lr_scheduler.step()
        evaluate(model, loader, device)


if __name__ == "__main__":
    main()
