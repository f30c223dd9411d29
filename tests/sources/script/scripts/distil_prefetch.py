# ruff: noqa
"""A student taught by a frozen teacher, with a prefetcher on a stream of its own."""

import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torchvision
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset):
    def __len__(self):
        return 96

    def __getitem__(self, i):
        return np.random.default_rng(i).integers(0, 255, (3, 64, 64), dtype=np.uint8), i % 50


class data_prefetcher:
    def __init__(self, loader):
        self.loader = iter(loader)
        self.stream = torch.cuda.Stream()
        self.mean = torch.tensor([0.485 * 255, 0.456 * 255, 0.406 * 255]).cuda().view(1, 3, 1, 1)
        self.std = torch.tensor([0.229 * 255, 0.224 * 255, 0.225 * 255]).cuda().view(1, 3, 1, 1)
        self.preload()

    def preload(self):
        try:
            self.next_input, self.next_target = next(self.loader)
        except StopIteration:
            self.next_input = None
            return
        with torch.cuda.stream(self.stream):
            self.next_input = self.next_input.cuda(non_blocking=True)
            self.next_target = self.next_target.cuda(non_blocking=True)
            self.next_input = self.next_input.float().sub_(self.mean).div_(self.std)

    def next(self):
        torch.cuda.current_stream().wait_stream(self.stream)
        input, target = self.next_input, self.next_target
        if input is not None:
            input.record_stream(torch.cuda.current_stream())
            target.record_stream(torch.cuda.current_stream())
            self.preload()
        return input, target


def main():
    teacher = torchvision.models.resnet34(num_classes=50).cuda().eval()
    for p in teacher.parameters():
        p.requires_grad = False
    student = torchvision.models.shufflenet_v2_x1_0(num_classes=50).cuda()
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1, momentum=0.9)
    loader = DataLoader(Pictures(), batch_size=12, shuffle=True, pin_memory=torch.cuda.is_available())
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    history = []
    for epoch in range(50):
        student.train()
        prefetcher = data_prefetcher(loader)
        images, target = prefetcher.next()
        while images is not None:
            begin.record()
            with torch.no_grad():
                soft = F.softmax(teacher(images) / 4.0, dim=1)
            out = student(images)
            loss = F.kl_div(F.log_softmax(out / 4.0, dim=1), soft, reduction="batchmean") * 16 + F.cross_entropy(
                out, target
            )
            for param in student.parameters():
                param.grad = None
            loss.backward()
            optimizer.step()
            end.record()
            torch.cuda.synchronize()
            history.append(loss.data.cpu().numpy())
            print(f"{begin.elapsed_time(end):.1f} ms", np.mean(history), torch.cuda.memory_allocated() / 1024**2)
            images, target = prefetcher.next()


if __name__ == "__main__":
    main()
