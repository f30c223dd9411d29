"""Tables of published GPU memory, row by row as jobs that oomproof can trace.

A table is recognised by its columns. A row says which of the three levels was published and where it was measured.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from old_detectron2 import OldDetectron2
from old_pytorch import OldPyTorch
from oomproof.errors import InputError
from oomproof.memory.batch_spec import MOST_OBJECTS
from oomproof.sources.torch.job import TorchJob

MIB = 1 << 20


@dataclass(frozen=True)
class Row:
    name: str
    job: Any
    level: str
    """allocated, reserved or on_device"""
    published: int
    site: str
    """whose machine: what belongs to its environment is calibrated apart"""
    gpu: str
    settings: dict[str, Any] = field(default_factory=dict)
    bent: bool = False
    """cut off at the end of the card: no figure to compare with"""
    others: dict[str, int] = field(default_factory=dict)
    """what other tools estimated for the same row"""
    reason: str = ""
    """why there is no job for the row, or too little is known of it; empty where there is one"""
    validated: bool = False
    """the figure is the most of a run that validates between epochs"""
    unknown_data: str = ""
    """the dataset of which nobody has said how crowded it is"""


def read(path: Path) -> Iterator[Row]:
    with path.open(newline="") as file:
        records = list(csv.DictReader(file))
    columns = set(records[0]) if records else set()
    for needed, reader in _READERS.items():
        if needed in columns:
            yield from map(reader, records)
            return
    raise InputError(
        f"{path}: unknown form of table; expected a column {' or '.join(_READERS)}, found {', '.join(columns)}"
    )


def _timm(record: dict[str, str]) -> Row:
    model, batch = record["timm_model"], int(record["batch_size"])
    return Row(
        f"{model} b{batch}",
        classifier(lambda: _create_timm(model), batch, lambda: _side_of(model), 1000),
        "on_device",
        int(record["max_gpu_memory_mib_nvidia_smi"]) * MIB,
        "gpumemnet",
        "A100-40GB",
        bent=record["likely_oom_censored"] == "1",
    )


def _create_timm(model: str) -> Any:
    import timm

    return timm.create_model(model, pretrained=False)


def _side_of(model: str) -> int:
    """The input size of timm's default configuration for the name: the figures only make sense with it."""
    import timm

    configuration = timm.get_pretrained_cfg(model)
    return int(configuration.input_size[-1]) if configuration else 224


_XMEM_MODELS = {
    "MNASNet(": "mnasnet1_0",
    "MobileNetV3(custom large": "mobilenet_v3_large",
    "MobileNetV3(custom small": "mobilenet_v3_small",
}
"""constructors that are not torchvision names, by how they begin"""


def _xmem(record: dict[str, str]) -> Row:
    import torch
    import torchvision

    constructor = record["torchvision_ctor"]
    name = next((ours for theirs, ours in _XMEM_MODELS.items() if constructor.startswith(theirs)), constructor)
    classes, batch = int(record["num_classes"]), int(record["batch_size"])
    side = int(record["input"].split("x")[0])
    kind = getattr(torch.optim, record["optimizer"])
    job = classifier(lambda: torchvision.models.get_model(name, num_classes=classes), batch, lambda: side, classes)
    return Row(
        f"{name} {record['optimizer']} b{batch} {record['gpu']}",
        TorchJob(job.model, job.batch, job.loss, lambda parameters: kind(parameters, lr=0.001)),
        "reserved",
        int(record["ground_bytes_nvml"]),
        "xmem",
        record["gpu"],
        bent=record["near_cap"] == "1" or record["real_oom"] == "1",
        others={
            tool: int(float(record[f"{tool}_estimate_bytes"]))
            for tool in ("xmem", "dnnmem", "schedtune")
            if record[f"{tool}_estimate_bytes"]
        },
    )


_TORCHVISION_AMP = {"fcos_resnet50_fpn": "fp16"}
"""models that the published recipe trains with --amp"""


def _torchvision(record: dict[str, str]) -> Row:
    from oomproof.sources import open_job

    batch = int(record["images_per_gpu"])
    return Row(
        f"{record['model']} b{batch}",
        open_job(f"torchvision:{record['model']}"),
        "allocated",
        int(float(record["train_mem_gb"]) * 1e9),
        "torchvision",
        "V100-32GB",
        {
            "batch": batch,
            "boxes": MOST_OBJECTS,
            "ddp": True,
            "precision": _TORCHVISION_AMP.get(record["model"], "fp32"),
        },
    )


def _detectron2(record: dict[str, str]) -> Row:
    """The figures are thousands of the MiB that Detectron2's log prints, or 1024 of them: nobody says which."""
    config, images = record["config"], int(record["images_per_gpu"])
    folder = config.split("/")[1]
    row = Row(
        record["name"].split()[0] + ("" if folder.startswith("COCO") else f" {folder}"),
        None,
        "allocated",
        int(float(record["train_mem_gb"]) * 1000 * MIB),
        "detectron2",
        "V100-32GB",
        {
            "gpus": int(record["ims_per_batch"]) // images,
            "boxes": MOST_OBJECTS,
            "ddp": True,
            "zero_grad": "keep",
            "real": False,
        },
    )
    if "vitdet" in config:
        return _vitdet(row, config)
    if not config.startswith("configs/") or not config.endswith(".yaml"):
        return replace(row, reason=f"{config} is no YAML of Detectron2 itself: a project with code of its own")
    from oomproof.sources import open_job

    try:
        job: Any = open_job(f"detectron2:{config.removeprefix('configs/')}")
    except InputError as error:
        return replace(row, reason=str(error))
    unknown = [
        name for name in job.config.values["DATASETS.TRAIN"] if not name.startswith(("coco", "voc", "keypoints"))
    ]
    if unknown:
        reason = f"how many objects the most crowded image of {unknown[0]} has is not known here (--crowd)"
        row = replace(row, reason=reason, unknown_data=unknown[0])
    old = OldPyTorch(job) if _MEASURED_AGAIN.search(config) else OldDetectron2(OldPyTorch(job))
    return replace(row, job=old)


def _vitdet(row: Row, config: str) -> Row:
    """Measured on A100s in spring 2022, when PyTorch kept what it keeps today (no OldPyTorch), but zeroed gradients in
    place and updated parameters one by one."""
    from oomproof.sources import open_job

    job = open_job(f"detectron2:{config}")
    settings = {name: value for name, value in row.settings.items() if name != "real"} | {"update": "plain"}
    row = replace(row, name=job.name.removesuffix(".py"), job=job, gpu="A100-80GB", settings=settings)
    if not job.name.startswith("LVIS"):
        return row
    reason = "how many objects the most crowded image of lvis_v1_train has is not known here (--crowd)"
    return replace(row, reason=reason, unknown_data="lvis_v1_train")


_MEASURED_AGAIN = re.compile("retinanet|_gn|_syncbn")
"""configs whose memory in MODEL_ZOO.md is of 2020 (its history: commits b0e26875, 01dab47e and 9e17a17b); all other
figures stand there since October 2019"""


_CARDS = {"Tesla T4": "T4", "NVIDIA L4": "L4", "RTX 3090": "RTX 3090", "RTX 2080 Ti": "RTX 2080 Ti",
          "V100-SXM2-32GB": "V100-32GB"}  # fmt: skip
"""cards of that table by the names they have here"""


def _modern(record: dict[str, str]) -> Row:
    """Figures of recent PyTorch. Ultralytics prints what is reserved while it trains; its rows are of trainings of at
    most 10 000 iterations, for which it takes AdamW."""
    from oomproof.sources import open_job

    framework, _, model = record["job"].partition(" ")
    batch, site = int(record["batch_per_gpu"] or 0), "ultralytics"
    row = Row(
        f"{model or framework} b{batch} {record['gpu']}", None, record["level"], int(record["mib"]) * MIB, site,
        _CARDS.get(record["gpu"], ""), {"batch": batch},
    )  # fmt: skip
    if framework != "ultralytics":
        return replace(row, reason=f"{record['job']}: no source for it here, or its images are not known")
    if not row.gpu or record["precision"] != "amp":
        return replace(
            row, reason=f"{record['gpu']}, {record['precision']}: not a plain training on a card of the list"
        )
    try:
        job = open_job(f"ultralytics:{model}")
    except InputError as error:
        return replace(row, reason=str(error))
    classes = re.search(r"\bnc=(\d+)", record["other_settings"])
    side = record["image_size"].partition("x")[0]
    settings = {
        **row.settings,
        "image_size": f"{side}x{side}",
        "iterations": 5000 if "Adam" in record["optimizer"] else 50_000,
    }
    settings |= {"classes": int(classes[1])} if classes else {}
    return replace(row, job=job, settings=settings, validated="PROFILE" not in record["other_settings"])


def with_crowds(row: Row, crowds: dict[str, int]) -> Row:
    """The row with the most crowded image of its dataset as somebody has stated it."""
    stated = next((count for name, count in crowds.items() if name and row.unknown_data.startswith(name)), None)
    if stated is None:
        return row
    words = f"{row.name} ({stated} objects)"
    return replace(row, name=words, settings={**row.settings, "boxes": stated}, reason="", unknown_data="")


def classifier(model: Callable[[], Any], batch: int, side: Callable[[], int], classes: int) -> TorchJob:
    import torch

    return TorchJob(
        model,
        lambda: (torch.rand(batch, 3, side(), side()), torch.randint(0, classes, (batch,))),
        lambda net, data: _cross_entropy(net(data[0]), data[1]),
    )


def _cross_entropy(outputs: Any, labels: Any) -> Any:
    import torch

    if isinstance(outputs, (tuple, list)):  # distilled models have two heads
        return sum(torch.nn.functional.cross_entropy(output, labels) for output in outputs)
    return torch.nn.functional.cross_entropy(outputs, labels)


_READERS: dict[str, Callable[[dict[str, str]], Row]] = {
    "timm_model": _timm,
    "ground_bytes_nvml": _xmem,
    "train_s_per_it": _torchvision,
    "rpn_pre_nms_topk_train": _detectron2,
    "batch_per_gpu": _modern,
}
