"""Published models: what each achieved, on what, and who says so. One function per zoo that gives such entries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_TASKS = ("detection", "segmentation")
_OUTPUTS = ("boxes", "masks", "keypoints", "segmentation", "classification")
_METRICS = (
    ("mask_map", "mask AP"),
    ("kp_map", "keypoint AP"),
    ("box_map", "box AP"),
    ("miou", "mean IoU"),
    ("acc@1", "acc@1"),
)
"""the names in torchvision's metadata, the most telling one of a model first, and as people say them"""


@dataclass(frozen=True)
class Published:
    """One model of a zoo."""

    job: str
    """as ``oomproof check`` takes it"""
    model: str
    task: str
    outputs: str
    """boxes, masks, keypoints, segmentation: metrics are compared within one kind only"""
    metric: str
    """«box AP»"""
    value: float
    """in percent"""
    data: str
    """what the metric was measured on: «COCO-val2017»"""
    source: str
    """where it is published"""
    side: int
    """shorter side of the images that the metric holds for"""
    parameters: int = 0
    gflops: float = 0.0
    """of one image in inference; both as published, or 0"""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """how one GPU of the published training trains it, where that is not the job as it is"""


def zoo(task: str = "all") -> tuple[Published, ...]:
    """Every published model of torchvision and Detectron2, by task and outputs, the best first."""
    from oomproof.sources.detectron2.zoo import published as detectron2

    tasks = _TASKS if task == "all" else (task,)
    others = detectron2.list_published()
    return tuple(
        entry
        for each in tasks
        for entry in _sort_entries((*list_published(each), *(other for other in others if other.task == each)))
    )


def list_published(task: str) -> tuple[Published, ...]:
    """torchvision's models of a task, from the metadata of their newest weights: nothing is downloaded."""
    from oomproof.sources.torchvision.job import model_names

    names = model_names()  # says what to install, where torchvision is missing
    from torchvision.models import get_model_weights

    return tuple(
        _entry(name, task, get_model_weights(name).DEFAULT) for name, own_task in names.items() if own_task == task
    )


def _entry(name: str, task: str, weights: Any) -> Published:
    from oomproof.sources.torchvision.families import default_size, outputs

    meta: Mapping[str, Any] = weights.meta
    data, metrics = next(iter(meta["_metrics"].items()))
    key, metric = next((key, words) for key, words in _METRICS if key in metrics)
    return Published(
        f"torchvision:{name}",
        name,
        task,
        outputs(name, task),
        metric,
        float(metrics[key]),
        data,
        _source(name, task, meta["recipe"]),
        int(weights.transforms.keywords["crop_size"]) if task == "classification" else min(default_size(name, task)[1]),
        int(meta["num_params"]),
        float(meta["_ops"]),
    )


def _source(name: str, task: str, recipe: str) -> str:
    """torchvision 0.29 exchanges the recipes of FCN and DeepLabV3 with ResNet-101; their sections are named alike."""
    page, mark, _ = recipe.partition("#")
    return f"{page}#{name}" if mark and task == "segmentation" else recipe


def _sort_entries(entries: tuple[Published, ...]) -> list[Published]:
    return sorted(entries, key=lambda entry: (_OUTPUTS.index(entry.outputs), -entry.value))
