"""A training script that knows nothing of oomproof.

oomproof check --on "RTX 3060" -- python examples/train_script.py --batch-size 256 --amp
"""

import argparse
from pathlib import Path

import torch
import torchvision
from torch.utils.data import DataLoader


class Pictures(torch.utils.data.Dataset):
    """Random ones, so that there is nothing to download."""

    def __init__(self, size):
        self.size = size

    def __len__(self):
        return 10_000

    def __getitem__(self, number):
        return torch.rand(3, self.size, self.size), number % 1000


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--epochs", type=int, default=90)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--amp", action="store_true")
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = torchvision.models.resnet50(weights="IMAGENET1K_V2").to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler(device.type, enabled=args.amp)
    loader = DataLoader(Pictures(args.image_size), args.batch_size, shuffle=True, num_workers=args.workers)
    Path("checkpoints").mkdir(exist_ok=True)
    for epoch in range(args.epochs):
        for images, labels in loader:
            x, y = images.to(device), labels.to(device)
            with torch.autocast(device.type, dtype=torch.float16, enabled=args.amp):
                loss = torch.nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        torch.save(model.state_dict(), f"checkpoints/{epoch}.pt")


if __name__ == "__main__":
    main()
