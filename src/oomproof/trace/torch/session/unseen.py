"""What a script may do after the steps that were seen, told from what it holds now."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import torch

from oomproof.frameworks.torch import FakeTensor
from oomproof.trace.torch.session.own_gpu import OwnGpu
from oomproof.trace.torch.session.steps import Steps

_MILLION = 10**6


def describe_sharing(processes: int, own_gpu: OwnGpu) -> Iterator[str]:
    if processes > 1 and not own_gpu.is_taken():
        yield (
            f"none of the {processes} processes was seen to take a GPU of its own (torch.cuda.set_device(LOCAL_RANK)): "
            f"if all use the first, it needs {processes} times as much"
        )


def describe_unseen(steps: Steps) -> Iterator[str]:
    for model in steps.models:
        frozen, trained = count_frozen(model)
        if frozen and trained:
            share = f"{frozen / _MILLION:.1f} of {(frozen + trained) / _MILLION:.1f} million parameters"
            yield f"{share} are frozen in these steps: a script that unfreezes them later needs more"
    waiting = sorted(type(each).__name__ for each in steps.optimizers if steps.is_waiting(each))
    if steps.taken and waiting:
        others = f"made no update while another optimizer made {steps.count()}"
        yield f"{', '.join(waiting)} {others}: what comes with it is not counted"
    if not steps.taken and "keras" not in sys.modules:
        yield "no optimizer of PyTorch made an update: the state of one that comes later is not counted"


def count_frozen(model: torch.nn.Module) -> tuple[int, int]:
    """Numbers of the parameters on the GPU that are frozen, and of those that are trained."""
    parameters = [each for each in model.parameters() if isinstance(each, FakeTensor)]
    trained = sum(each.numel() for each in parameters if each.requires_grad)
    return sum(each.numel() for each in parameters) - trained, trained
