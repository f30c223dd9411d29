# ruff: noqa
"""U-Net for segmentation: bf16 autocast, channels_last, dice loss over one-hot masks."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


def double_conv(cin, cout):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, padding=1),
        nn.BatchNorm2d(cout),
        nn.ReLU(inplace=True),
        nn.Conv2d(cout, cout, 3, padding=1),
        nn.BatchNorm2d(cout),
        nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    def __init__(self, classes, base=24):
        super().__init__()
        self.inc = double_conv(3, base)
        self.down1 = double_conv(base, base * 2)
        self.down2 = double_conv(base * 2, base * 4)
        self.up1 = nn.ConvTranspose2d(base * 4, base * 2, 2, stride=2)
        self.dec1 = double_conv(base * 4, base * 2)
        self.dec2 = double_conv(base * 3, base)
        self.head = nn.Conv2d(base, classes, 1)

    def forward(self, x):
        a = self.inc(x)
        b = self.down1(F.max_pool2d(a, 2))
        c = self.down2(F.max_pool2d(b, 2))
        d = self.dec1(torch.cat([self.up1(c), b], 1))
        e = F.interpolate(d, scale_factor=2, mode="bilinear", align_corners=False)
        return self.head(self.dec2(torch.cat([e, a], 1)))


def dice_loss(logits, target, eps=1e-6):
    n = logits.shape[1]
    probs = logits.float().softmax(1)
    onehot = F.one_hot(target, n).permute(0, 3, 1, 2).float()
    inter = (probs * onehot).sum((2, 3))
    return 1 - ((2 * inter + eps) / (probs.sum((2, 3)) + onehot.sum((2, 3)) + eps)).mean()


def train_net(net, device, epochs=5, batch_size=4, lr=1e-4):
    rng = np.random.default_rng(0)
    images = torch.from_numpy(rng.standard_normal((16, 3, 96, 96), dtype=np.float32))
    masks = torch.from_numpy(rng.integers(0, 4, (16, 96, 96)))
    loader = DataLoader(TensorDataset(images, masks), batch_size=batch_size, shuffle=True)
    optimizer = torch.optim.RMSprop(net.parameters(), lr=lr, weight_decay=1e-8, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, "max", patience=2)
    for epoch in range(epochs):
        net.train()
        epoch_loss = 0
        for image, true_masks in loader:
            image = image.to(device=device, dtype=torch.float32, memory_format=torch.channels_last)
            true_masks = true_masks.to(device=device, dtype=torch.long)
            with torch.autocast(device.type if device.type != "mps" else "cpu", dtype=torch.bfloat16):
                pred = net(image)
                loss = F.cross_entropy(pred, true_masks) + dice_loss(pred, true_masks)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            epoch_loss += loss.item()
        scheduler.step(epoch_loss)


if __name__ == "__main__":
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    net = UNet(4)
    net = net.to(memory_format=torch.channels_last)
    net.to(device=device)
    train_net(net=net, device=device)
