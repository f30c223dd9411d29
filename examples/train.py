"""A training script as people have it: nothing in it is made for oomproof.

oomproof check --on "RTX 3060" -- python examples/train.py --batch-size 8 --amp
"""

import argparse

import torch
import torchvision
from torch.utils.data import DataLoader, Dataset


class Shapes(Dataset):
    """Images with a few made-up boxes; yours come from files."""

    def __init__(self, images=200, side=512):
        self.images, self.side = images, side

    def __len__(self):
        return self.images

    def __getitem__(self, number):
        count = 1 + number % 7
        corner = torch.rand(count, 2) * (self.side - 60)
        boxes = torch.cat([corner, corner + 10 + torch.rand(count, 2) * 40], dim=1)
        return torch.rand(3, self.side, self.side), {"boxes": boxes, "labels": torch.randint(1, 4, (count,))}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--amp", action="store_true")
    options = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = torchvision.models.detection.retinanet_resnet50_fpn(weights=None, weights_backbone=None, num_classes=4)
    model.to(device).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.005, momentum=0.9, weight_decay=5e-4)
    scaler = torch.amp.GradScaler("cuda", enabled=options.amp)
    loader = DataLoader(
        Shapes(),
        batch_size=options.batch_size,
        shuffle=True,
        num_workers=options.workers,
        collate_fn=lambda samples: tuple(zip(*samples, strict=True)),
        pin_memory=True,
    )
    for epoch in range(options.epochs):
        for step, batch in enumerate(loader):
            images = [image.to(device, non_blocking=True) for image in batch[0]]
            targets = [{name: tensor.to(device) for name, tensor in target.items()} for target in batch[1]]
            with torch.autocast("cuda", enabled=options.amp):
                loss = sum(model(images, targets).values())
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            if step % 10 == 0:
                print(f"epoch {epoch}, step {step}: loss {loss.item():.3f}")
        torch.save(model.state_dict(), "model.pt")


if __name__ == "__main__":
    main()
