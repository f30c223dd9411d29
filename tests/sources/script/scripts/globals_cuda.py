# ruff: noqa
# a script without functions, as notebooks become when they are exported
import csv
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 32
LR = 1e-3
os.makedirs("runs/exp1", exist_ok=True)
log = open("runs/exp1/log.csv", "w")
writer = csv.writer(log)
writer.writerow(["step", "loss"])

x_train = np.random.RandomState(0).randn(512, 3, 48, 48).astype("float32")
y_train = np.random.RandomState(1).randint(0, 10, 512)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(64)
        self.conv2 = nn.Conv2d(64, 128, 3, padding=1)
        self.bn2 = nn.BatchNorm2d(128)
        self.fc1 = nn.Linear(128 * 12 * 12, 256)
        self.drop = nn.Dropout(0.5)
        self.fc2 = nn.Linear(256, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 2)
        x = F.max_pool2d(F.relu(self.bn2(self.conv2(x))), 2)
        x = torch.flatten(x, 1)
        return F.log_softmax(self.fc2(self.drop(F.relu(self.fc1(x)))), dim=1)


net = Net().cuda()
optimizer = torch.optim.Adam(net.parameters(), lr=LR)
step = 0
for epoch in range(100):
    order = np.random.permutation(len(x_train))
    for start in range(0, len(order), BATCH):
        index = order[start : start + BATCH]
        x = torch.from_numpy(x_train[index]).cuda()
        y = torch.tensor(y_train[index]).cuda()
        optimizer.zero_grad(set_to_none=False)
        out = net(x)
        loss = F.nll_loss(out, y)
        loss.backward()
        optimizer.step()
        step += 1
        writer.writerow([step, float(loss)])
        if step % 5 == 0:
            print(step, loss.item())
    torch.save(net.state_dict(), f"runs/exp1/epoch{epoch}.pt")
