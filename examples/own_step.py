"""A whole step of your own: mixed precision, accumulation and gradient clipping as the training script has them.

oomproof check examples/own_step.py:job --on 8GiB --set micro_batch=8
"""

import torch
import torchvision
from torch import nn

from oomproof import Knob, Option, TorchJob

CLASSES = 21


def job(micro_batch=4, micro_batches=4, side=480):
    def model():
        net = torchvision.models.segmentation.deeplabv3_resnet50(
            weights=None, weights_backbone=None, num_classes=CLASSES
        )
        # What lives on from step to step is made in a factory, so that every forecast starts with a new one.
        net.scaler = torch.amp.GradScaler("cuda")
        return net

    def step(model, batch, optimizer):
        # It runs as it is: it alone says when gradients are dropped, what is cast, clipped and applied.
        scaler = model.scaler
        optimizer.zero_grad(set_to_none=True)
        for images, labels in batch:
            with torch.autocast("cuda", dtype=torch.float16):
                scores = model(images.cuda())["out"]  # nothing is moved by .cuda(): there is no GPU to move it to
                loss = nn.functional.cross_entropy(scores, labels.cuda()) / micro_batches
            scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        scaler.step(optimizer)
        scaler.update()

    def data():
        return [
            (torch.rand(micro_batch, 3, side, side), torch.randint(0, CLASSES, (micro_batch, side, side)))
            for _ in range(micro_batches)
        ]

    # What `oomproof fit` may change about this step: the present values first, the thriftiest last.
    images = micro_batch * micro_batches
    sizes = [size for size in range(micro_batch, 1, -1) if images % size == 0]  # pooled features want two for BatchNorm
    smaller = Knob(
        "micro_batch",
        tuple(Option(size, {"micro_batch": size, "micro_batches": images // size}) for size in sizes),
        promise="equivalent",
        why="the same number of images an update; BatchNorm takes its statistics from fewer",
    )
    return TorchJob(
        model=model,
        batch=data,
        step=step,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.01, momentum=0.9),
        extra_knobs=(smaller,),
    )
