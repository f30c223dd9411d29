"""Real loaders with worker processes: those that grow are told from those that do not, from inside and outside."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.thorough,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere the system tells no shares"),
]

TRAINING = """
import os, sys, time
import numpy, torch
from torch.utils.data import DataLoader, Dataset
from oomproof.run.monitor.monitor import Monitor

kind, log = sys.argv[1], sys.argv[2]
torch.set_num_threads(1)


class Images(Dataset):
    # annotations as most datasets have them: Python objects, whose counts of references a worker writes to
    def __init__(self):
        self.kept = {}
        boxes = [[0.5 * each, 1.0, 2.0, 3.0] for each in range(80)]  # 2 MB a step: queues hold 12 MB of batches at most
        self.annotations = [{"id": each, "boxes": [list(box) for box in boxes]} for each in range(LENGTH)]

    def __len__(self):
        return LENGTH

    def __getitem__(self, place):
        image = torch.from_numpy(numpy.random.randint(0, 255, (3, 128, 128), dtype=numpy.uint8)).float()
        if kind == "a cache without end":
            self.kept[place] = image
        if kind == "annotations in lists":
            for each in range(25):  # 200 a step: not all of them in 160 steps
                sum(box[0] for box in self.annotations[(25 * place + each) % LENGTH]["boxes"])
        return image


LENGTH = {"annotations in lists": 40_000, "a cache without end": 2000}.get(kind, 640)  # 1280 are read: none twice
loader = DataLoader(Images(), batch_size=8, num_workers=4, shuffle=kind != "annotations in lists")
net = torch.nn.Conv2d(3, 4, 3)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
losses = []
monitor, step = Monitor(log, host_limit=1 << 40, warm_up=30), 0
for epoch in range(3):
    for images in loader:
        optimizer.zero_grad()
        loss = net(images).square().mean()
        loss.backward()
        optimizer.step()
        if kind == "a leak of the training":
            losses.append(net(images).square())  # with its graph
        step += 1
        if step % 4 == 0:
            monitor._next = -1.0  # as in a training whose steps are long enough
        monitor.step()
        time.sleep(0.5)  # 80 s: what goes on for that long has outlasted 30 s of warming up
        if step == 160:
            print(monitor.close(), flush=True)
            os._exit(0)  # at once, as one that was killed: workers that are ended one by one are no trend
"""
GROWING = ["annotations in lists", "a cache without end"]
LEVEL = ["a healthy loader", "a leak of the training"]
WORKERS = "it is the child processes that grow"


@pytest.mark.parametrize("kind", GROWING + LEVEL)
def test_workers_that_grow_are_told_by_a_monitor_and_by_watch(kind: str, tmp_path: Path) -> None:
    log = tmp_path / "memory.jsonl"
    command = [sys.executable, "-W", "ignore", "-c", TRAINING, kind, str(log)]
    training = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    while not log.exists() or '"step": 10,' not in log.read_text():  # PyTorch is loaded, and workers have begun
        assert training.poll() is None
        time.sleep(0.1)
    try:
        watch = subprocess.run(
            [sys.executable, "-m", "oomproof", "watch", str(training.pid), "--every", "0.2", "--warm-up", "30"],
            capture_output=True, text=True, timeout=500, check=False,
        )  # fmt: skip
    finally:
        training.kill()
    inside, _ = training.communicate()
    outside = " ".join(watch.stdout.split())
    assert watch.returncode == (0 if kind == "a healthy loader" else 2), outside
    assert re.search(r"process \d+ has ended", outside)
    for said in (inside, outside):
        assert (" leak: " in said) == (kind != "a healthy loader"), said
        assert (WORKERS in said) == (kind in GROWING), said
