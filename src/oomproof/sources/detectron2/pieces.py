"""The pieces of a Detectron2 job for the tracer: model, batch, loss and optimizer of its training loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from oomproof.errors import InputError
from oomproof.memory.batch_spec import BatchSpec, make_up
from oomproof.sources.detectron2.sizes import images_per_gpu
from oomproof.sources.torch.job import TorchJob
from oomproof.trace.torch.around.without_dynamo import without_dynamo


def pieces(values: Mapping[str, Any], settings: Mapping[str, Any], given: BatchSpec | None = None) -> TorchJob:
    """The job under ``settings``; ``values`` are all keys, those in the settings among them. ``given`` are the images
    of one GPU, where others are meant than the settings have."""
    with without_dynamo():
        from oomproof.sources.detectron2 import real
        from oomproof.sources.detectron2.blueprint import batch, build

    spec = given or make_up(images_per_gpu(settings), settings["image_size"], settings["boxes"])
    make = real.batch if settings["real"] else batch.batch

    def data() -> list[dict[str, Any]]:
        return [made for each in spec.images for made in make(values, 1, each.height, each.width, each.objects)]

    if settings["real"]:
        return TorchJob(
            lambda: real.build(values),
            data,
            real.loss,
            optimizer(values),
        )
    return TorchJob(
        lambda: build.build(values),
        data,
        lambda model, data: model(data),
        optimizer(values),
    )


def optimizer(values: Mapping[str, Any]) -> Callable[[Any], torch.optim.Optimizer]:
    """SGD, the one optimizer that Detectron2 builds from a config, with its gradient clipping."""
    arguments = {
        "lr": float(values["SOLVER.BASE_LR"]),
        "momentum": float(values["SOLVER.MOMENTUM"]),
        "nesterov": bool(values["SOLVER.NESTEROV"]),
        "weight_decay": float(values["SOLVER.WEIGHT_DECAY"]),
    }
    if not values["SOLVER.CLIP_GRADIENTS.ENABLED"]:
        return lambda parameters: torch.optim.SGD(parameters, **arguments)
    kind = values["SOLVER.CLIP_GRADIENTS.CLIP_TYPE"]
    if kind not in ("value", "norm"):
        raise InputError(f"SOLVER.CLIP_GRADIENTS.CLIP_TYPE must be value or norm; got '{kind}'")
    limit, norm = values["SOLVER.CLIP_GRADIENTS.CLIP_VALUE"], values["SOLVER.CLIP_GRADIENTS.NORM_TYPE"]

    def clip(parameter: torch.Tensor) -> None:
        if kind == "norm":
            torch.nn.utils.clip_grad_norm_(parameter, limit, norm)
        else:
            torch.nn.utils.clip_grad_value_(parameter, limit)

    def clip_all(made: torch.optim.Optimizer, *_: Any) -> None:
        """Detectron2 clips parameter by parameter, in the optimizer's step."""
        for group in made.param_groups:
            for parameter in group["params"]:
                clip(parameter)

    def make(parameters: Any) -> torch.optim.Optimizer:
        made = torch.optim.SGD(parameters, **arguments)
        made.register_step_pre_hook(clip_all)
        return made

    return make
