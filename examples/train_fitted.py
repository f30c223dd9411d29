"""Does a plan really train, and with the same gradients? Two steps on the CPU, plain and as planned, side by side.

oomproof fit examples/train_job.py:job --on RTX-3070 --batch 8 --keep identical --write fitted.json
python examples/train_fitted.py fitted.json
"""

import copy
import sys

import torch

import oomproof
from train_job import job


def small_detector():
    """The job of train_job.py, made so small that a CPU takes seconds for a step: the same modules, fewer pixels."""
    pieces = job(batch=2, image_size=(64, 96), boxes=3)
    model = pieces.model().train()
    model.roi_heads.fg_bg_sampler.batch_size_per_image = 16
    for name, buffer in model.named_buffers():
        if name.endswith("bn3.weight"):  # without pretrained weights, frozen normalisation would let losses explode
            buffer.fill_(0.2)
    return model, pieces.loss, pieces.batch()


def sgd(model):
    return torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.002, momentum=0.9)


def apart(plain, fitted):
    """The largest difference of a gradient, as a part of that gradient."""
    pairs = zip(plain.parameters(), fitted.parameters(), strict=True)
    return max(((a.grad - b.grad).norm() / a.grad.norm()).item() for a, b in pairs if a.grad is not None)


def main(settings):
    torch.set_num_threads(1)  # a step this small is no quicker with more
    torch.set_default_dtype(torch.float64)  # so that rounding cannot turn a decision of NMS or matching around
    torch.manual_seed(0)
    model, loss, batch = small_detector()
    fitted = copy.deepcopy(model)
    optimizer = sgd(model)
    step = oomproof.Step(fitted, sgd(fitted), loss, settings)
    for number in (1, 2):
        torch.manual_seed(number)  # the detector draws samples
        optimizer.zero_grad()
        plain = sum(loss(model, batch).values())
        plain.backward()
        optimizer.step()

        torch.manual_seed(number)
        planned = step(batch)
        print(f"step {number}: loss {plain.item():.4f} plain, {planned.item():.4f} as planned; ", end="")
        print(f"gradients differ by {apart(model, fitted):.0e} of themselves at most")


if __name__ == "__main__":
    main(sys.argv[1])
