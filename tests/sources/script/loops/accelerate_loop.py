# ruff: noqa
import numpy as np
import torch
import torchvision
from accelerate import Accelerator
from torch.utils.data import DataLoader, Dataset


class Noise(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, i):
        return np.random.default_rng(i).standard_normal((3, 64, 64), dtype=np.float32), i % 10


def main():
    accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=2)
    model = torchvision.models.resnet18(num_classes=10)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader = DataLoader(Noise(), batch_size=8, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for epoch in range(3):
        for x, y in loader:
            with accelerator.accumulate(model):
                loss = torch.nn.functional.cross_entropy(model(x), y)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
        accelerator.save_state("checkpoints")


if __name__ == "__main__":
    main()
