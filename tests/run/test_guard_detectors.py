"""Guarded detectors: micro-batches with the samples and divisors of the whole batch; a real limit on memory."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn, optim
from torchvision.models.detection import MaskRCNN
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.faster_rcnn import FastRCNNPredictor, TwoMLPHead
from torchvision.models.detection.mask_rcnn import MaskRCNNHeads, MaskRCNNPredictor
from torchvision.ops import FrozenBatchNorm2d, MultiScaleRoIAlign

from oomproof.changes.torch.losses import total
from oomproof.run.guard.guard import Guard

sys.path.append(str(Path(__file__).parents[1] / "changes"))
from promise_models import CASES, fresh

from thorough import thorough_but

STEPS = 3


def optimizer_for(model: nn.Module) -> optim.Optimizer:
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return optim.SGD(trained, lr=1e-3, momentum=0.9, weight_decay=1e-4)


@pytest.mark.slow
@pytest.mark.usefixtures("double_precision")
@pytest.mark.parametrize("largest", [1, 3])
@pytest.mark.parametrize("case", thorough_but(["SSD"], ["Mask R-CNN", "Faster R-CNN", "FCOS", "SSD", "RetinaNet"]))
def test_split_batches_train_as_whole_ones(case: str, largest: int) -> None:
    start, batch, loss = fresh(case, False, torch.float64), CASES[case].batch(), CASES[case].loss
    plain, split = copy.deepcopy(start), copy.deepcopy(start)
    optimizer, expected = optimizer_for(plain), []
    torch.manual_seed(1)
    for _ in range(STEPS):
        optimizer.zero_grad()
        found = total(loss(plain, batch))
        found.backward()
        optimizer.step()
        expected.append(found.item())
    after = torch.get_rng_state()
    guard = Guard(split, optimizer_for(split), {"batch": largest})
    torch.manual_seed(1)
    assert [guard.step(batch, loss).item() for _ in range(STEPS)] == pytest.approx(expected, rel=1e-6)
    assert torch.equal(after, torch.get_rng_state())
    for a, b in zip(plain.parameters(), split.parameters(), strict=True):
        assert (a - b).abs().max() <= 1e-7 * a.abs().max()


@pytest.mark.slow
def test_losses_that_cannot_be_weighed_are_told(caplog: pytest.LogCaptureFixture) -> None:
    model = copy.deepcopy(fresh("Faster R-CNN"))
    guard = Guard(model, optimizer_for(model), {"batch": 2})
    for _ in range(2):
        guard.step(CASES["Faster R-CNN"].batch(), lambda model, batch: sum(model(*batch).values()))
    assert [each for each in caplog.messages if "returns the dict of losses" in each] == caplog.messages
    assert len(caplog.messages) == 1


def small_mask_rcnn() -> nn.Module:
    """Few weights, so that what runs out is what images take; normalisation is frozen."""

    def layer(channels: int, out: int) -> list[nn.Module]:
        return [nn.Conv2d(channels, out, 3, stride=2, padding=1), FrozenBatchNorm2d(out), nn.ReLU()]

    backbone = nn.Sequential(*layer(3, 16), *layer(16, 32), *layer(32, 32))
    backbone.out_channels = 32
    return MaskRCNN(
        backbone, None, min_size=160, max_size=160,
        rpn_anchor_generator=AnchorGenerator(((32, 64, 128),), ((0.5, 1.0, 2.0),)),
        rpn_post_nms_top_n_train=60, box_batch_size_per_image=16,
        box_roi_pool=MultiScaleRoIAlign(["0"], 7, 2), mask_roi_pool=MultiScaleRoIAlign(["0"], 14, 2),
        box_head=TwoMLPHead(32 * 49, 64), box_predictor=FastRCNNPredictor(64, 4),
        mask_head=MaskRCNNHeads(32, (32, 32), 1), mask_predictor=MaskRCNNPredictor(32, 32, 4),
    )  # fmt: skip


LIMITED = """
import json, resource, sys
sys.path[:0] = sys.argv[1].split(":")
import torch
torch.set_num_threads(1)
torch.set_default_dtype(torch.float64)
import oomproof, promise_models
from test_guard_detectors import optimizer_for, small_mask_rcnn
from oomproof.changes.torch.losses import total

def data():
    return next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith("VmData"))

room, steps, images = json.loads(sys.argv[2])
promise_models.SIDE = 160
promise_models.BOXES = (3, 1, 5, 2) * (images // 4)
torch.manual_seed(7)
model = small_mask_rcnn().train()
batch = promise_models.detection_batch(masks=True)
optimizer = optimizer_for(model)
small = [each[:1] for each in batch]  # kernels and their scratch are there before memory is counted
total(model(*small)).backward()
optimizer.zero_grad()
torch.manual_seed(1)
used = data()
if room:
    resource.setrlimit(resource.RLIMIT_DATA, (used + room, resource.RLIM_INFINITY))
guard = oomproof.Guard(model, optimizer)
most = 0


def loss(model, batch):
    global most
    found = model(*batch)
    if torch.is_grad_enabled():
        most = max(most, data())  # every activation is there at the end of forward
    return found


losses = [guard.step(batch, loss).item() for _ in range(steps)]
about = {"losses": losses, "recoveries": guard.recoveries, "largest": guard.sizes.largest, "needed": most - used}
print(json.dumps(about))
"""


def train_limited(room: int, steps: int, images: int) -> tuple[dict[str, Any], str]:
    here = Path(__file__).parent
    paths = f"{here}:{here.parent / 'changes'}:{here.parent}"
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", LIMITED, paths, json.dumps([room, steps, images])],
        capture_output=True,
        text=True,
        check=False,
        # Freed memory goes back to the system at once, as it does on a GPU, whose limit this one stands for.
        env={**os.environ, "MALLOC_MMAP_THRESHOLD_": "262144", "MALLOC_ARENA_MAX": "1", "OMP_NUM_THREADS": "1"},
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    return json.loads(ran.stdout.splitlines()[-1]), ran.stderr


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="RLIMIT_DATA is Linux's")
def test_mask_rcnn_under_half_of_what_its_batch_needs() -> None:
    """The kernel sets the limit: the batch of 8 does not fit, and the losses are those it would have had."""
    free, _ = train_limited(0, 20, 8)
    needed = free["needed"]
    tight, log = train_limited(needed // 2, 20, 8)
    assert tight["recoveries"] >= 1 and tight["largest"] < 8
    assert "the update is the same" in log
    assert tight["losses"] == pytest.approx(free["losses"], rel=1e-4)
