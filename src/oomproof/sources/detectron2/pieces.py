"""The pieces of a Detectron2 job for the tracer: model, batch, loss and optimizer of its training loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from oomproof.errors import InputError
from oomproof.memory.batch_spec import BatchSpec, make_up
from oomproof.memory.validation import Validation
from oomproof.sources.detectron2.sizes import images_per_gpu
from oomproof.sources.detectron2.validation import resize_image, validation_images
from oomproof.sources.torch.job import TorchJob
from oomproof.trace.torch.around.without_dynamo import without_dynamo


def pieces(
    values: Mapping[str, Any],
    settings: Mapping[str, Any],
    given: BatchSpec | None = None,
    validation: Validation | None = None,
) -> TorchJob:
    """The job under ``settings``; ``values`` are all keys, those in the settings among them. ``given`` are the images
    of one GPU, where others are meant than the settings have; of a ``validation``, as they are stored."""
    with without_dynamo():
        from oomproof.sources.detectron2 import real
        from oomproof.sources.detectron2.blueprint import batch, build
        from oomproof.sources.detectron2.blueprint.inference import infer

    # Keypoints are cut out box by box, and those of an untrained network have no size: the blueprint's do.
    is_real = bool(settings["real"]) and not (validation is not None and values["MODEL.KEYPOINT_ON"])
    spec = (given if validation is None else None) or make_up(
        images_per_gpu(settings), settings["image_size"], settings["boxes"]
    )
    make = real.make_real_batch if is_real else batch.make_batch

    def data() -> list[dict[str, Any]]:
        return [made for each in spec.images for made in make(values, 1, each.height, each.width, each.objects)]

    def data_to_validate() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for each in validation_images(values, given, 0 if validation is None else validation.batch):
            [made] = make(values, 1, *resize_image(values, each), 0)
            kept: dict[str, Any] = {name: made[name] for name in ("image", "proposals") if name in made}
            found.append({**kept, "height": each.height, "width": each.width})
        return found

    if is_real:
        return TorchJob(
            lambda: real.build_real_model(values),
            data,
            real.loss,
            optimizer(values),
            validate=real.infer,
            validation_batch=data_to_validate,
        )
    return TorchJob(
        lambda: build.build_blueprint(values),
        data,
        lambda model, data: model(data),
        optimizer(values),
        validate=infer,
        validation_batch=data_to_validate,
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
