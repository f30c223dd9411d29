"""The pieces of a ViTDet job for the tracer: model, batch, loss and optimizer of its training loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from oomproof.memory.batch_spec import BatchSpec, make_up
from oomproof.memory.validation import Validation
from oomproof.sources.detectron2.validation import resize_image, validation_images
from oomproof.sources.detectron2.vitdet.published import Vitdet
from oomproof.sources.detectron2.vitdet.settings import images_per_gpu, read_shape, read_values
from oomproof.sources.torch.job import TorchJob
from oomproof.trace.torch.around.without_dynamo import without_dynamo


def make_pieces(
    config: Vitdet,
    settings: Mapping[str, Any],
    given: BatchSpec | None = None,
    validation: Validation | None = None,
) -> TorchJob:
    """``given`` are the images of one GPU, where others are meant than the settings have; of a ``validation``, as they
    are stored."""
    with without_dynamo():
        from oomproof.sources.detectron2.blueprint.batch import make_batch
        from oomproof.sources.detectron2.blueprint.build import build_vitdet
        from oomproof.sources.detectron2.blueprint.inference import infer

    values, shape = read_values(config, settings), read_shape(config, settings)
    names: list[str] = []

    def model() -> torch.nn.Module:
        made: torch.nn.Module = build_vitdet(values, shape)
        names[:] = [name for name, _ in made.named_parameters()]
        return made

    def batch() -> list[dict[str, Any]]:
        made_up = make_up(images_per_gpu(settings), settings["image_size"], settings["boxes"])
        images = ((given if validation is None else None) or made_up).images
        return [made for each in images for made in make_batch(values, 1, each.height, each.width, each.objects)]

    def validation_batch() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for each in validation_images(values, given, 0 if validation is None else validation.batch):
            [made] = make_batch(values, 1, *resize_image(values, each), 0)
            found.append({"image": made["image"], "height": each.height, "width": each.width})
        return found

    return TorchJob(
        model,
        batch,
        lambda model, data: model(data),
        lambda parameters: torch.optim.AdamW(
            group_parameters(names, parameters, shape.depth),
            lr=values["SOLVER.BASE_LR"],
            weight_decay=values["SOLVER.WEIGHT_DECAY"],
        ),
        validate=infer,
        validation_batch=validation_batch,
        name=config.name,
    )


def group_parameters(names: Sequence[str], parameters: Sequence[Any], depth: int) -> list[dict[str, Any]]:
    """A group for each layer, as the layers' own learning rates make them: PyTorch updates one group at a time, so that
    its temporary lists are no longer than a layer."""
    groups: dict[int, list[Any]] = {}
    for name, parameter in zip(names, parameters, strict=True):
        groups.setdefault(find_layer(name, depth), []).append(parameter)
    return [{"params": group} for group in groups.values()]


def find_layer(name: str, depth: int) -> int:
    """0 is what comes before the blocks, depth + 1 all that comes after them.

    >>> find_layer("backbone.net.blocks.3.mlp.fc1.weight", 12), find_layer("roi_heads.box_head.fc1.bias", 12)
    (4, 13)
    """
    if ".pos_embed" in name or ".patch_embed" in name:
        return 0
    _, found, rest = name.partition(".blocks.")
    return int(rest.split(".")[0]) + 1 if found else depth + 1
