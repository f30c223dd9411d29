"""Ultralytics models by name, as ``YOLO(NAME).train(...)`` trains them by default.

Its defaults: mixed precision, an average of the weights, gradients accumulated to a nominal batch of 64, and an
optimizer that follows from the number of iterations.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import Any

from oomproof.errors import InputError
from oomproof.memory.batch_spec import MOST_OBJECTS, OBJECTS_HELP, OTHER_OBJECTS
from oomproof.sources.job import ASSUMED, Setting, Settings
from oomproof.sources.torch.job import TorchJob
from oomproof.sources.torch.named import NamedJob, batch_setting, size_setting
from oomproof.sources.ultralytics.batch import make_batch

_BATCH, _SIZE, _NOMINAL = 16, 640, 64
"""batch, imgsz and nbs of its default.yaml"""
_MOSAIC = 4
"""images that its mosaic, on by default, makes one of"""
_LONG = 100_000
"""iterations of a training on COCO; up to 10 000 Ultralytics takes AdamW"""
_GROWS = "validation is counted up to its loss: the averaged model, twice the batch; NMS comes on top"
_AMP_CHECK = 720 << 20
"""bytes that Ultralytics' check of mixed precision may leave in the cache: a training of yolov8n-cls, which takes 0.2
GiB by itself, was seen to hold 0.755 GB, and a profile of yolov8s with one image, after the same check, 0.654 GB, both
on a T4 with PyTorch 2.0. Today's check, a nano model on eight images of 256 pixels, is forecast at 0.12 GiB"""
_VALIDATES_AS_TRAINED = ("obb",)
"""tasks that validate with the batch of the training; others with twice as many images (trainer.py of 8.4)"""
_TASKS = ("detect", "segment", "pose", "obb", "classify")


def open_ultralytics(name: str) -> NamedJob:
    ultralytics = _ultralytics()
    config = _config(name)
    task = ultralytics.nn.tasks.guess_model_task(config)
    if task not in _TASKS:
        raise InputError(
            f"ultralytics:{name} is a model for '{task}', which is not followed yet: {', '.join(_TASKS)} are"
        )
    classify = task == "classify"
    side = 224 if classify else _SIZE
    own = [
        batch_setting(_BATCH),
        size_setting((side, side), "height x width of the batches, in pixels; imgsz"),
        Setting("classes", int(config.get("nc", 80)), "number of classes"),
        Setting("iterations", _LONG, "batches of the whole training: up to 10 000, optimizer=auto is AdamW"),
    ]
    if not classify:
        own.append(
            Setting(
                "boxes",
                MOST_OBJECTS,
                f"{OBJECTS_HELP}; here an image is a mosaic of four",
                basis=ASSUMED,
                usual=OTHER_OBJECTS,
            )
        )
    return NamedJob(
        name=f"ultralytics:{name}",
        own=tuple(own),
        make=lambda settings: _pieces(config, task, settings),
        code=lambda settings: _code(name),
        notes=(_GROWS,),
        mosaic=1 if classify else _MOSAIC,
        before_steps=lambda settings: 0 if settings["precision"] == "fp32" else _AMP_CHECK,
        usual={
            "precision": "fp16",
            "ema": True,
            "accumulate": lambda values: max(round(_NOMINAL / values["batch"]), 1),
        },
    )


def _pieces(config: dict[str, Any], task: str, settings: Settings) -> TorchJob:
    held: list[Any] = []

    def build() -> Any:
        from ultralytics.cfg import get_cfg
        from ultralytics.nn import tasks

        kinds = {
            "detect": tasks.RTDETRDetectionModel if "RTDETR" in str(config["head"][-1]) else tasks.DetectionModel,
            "segment": tasks.SegmentationModel,
            "pose": tasks.PoseModel,
            "obb": tasks.OBBModel,
            "classify": tasks.ClassificationModel,
        }
        model = kinds[task](config, nc=settings["classes"], verbose=False)
        model.args = get_cfg()
        held[:] = [model]
        return model

    def loss(model: Any, batch: Any) -> Any:
        return model(batch)[0].sum()

    half = settings.get("precision", "fp16") != "fp32"

    def validation_batch() -> Any:
        images = settings["batch"] * (1 if task in _VALIDATES_AS_TRAINED else 2)
        batch = make_batch(task, settings.with_values({"batch": images}))
        return {**batch, "img": batch["img"].half() if half else batch["img"]}

    def validate(model: Any, batch: Any) -> Any:
        """Weights stay in fp32 under autocast; the loss is added up beside the predictions (validator.py of 8.4)."""
        import torch

        with torch.autocast("cuda", torch.float16, enabled=half):
            predictions = model(batch["img"])
            model.loss(batch, predictions)
        return predictions

    return TorchJob(
        model=build,
        batch=lambda: make_batch(task, settings),
        loss=loss,
        optimizer=lambda parameters: _optimizer(held[0], settings),
        validate=validate,
        validation_batch=validation_batch,
    )


def _optimizer(model: Any, settings: Settings) -> Any:
    """The one that its trainer would choose."""
    from types import SimpleNamespace

    from ultralytics.engine.trainer import BaseTrainer

    trainer = SimpleNamespace(
        data={"nc": settings["classes"]},
        args=SimpleNamespace(lr0=0.01, optimizer="auto", warmup_bias_lr=0.1, momentum=0.937, cls_w=1.0, box=7.5),
        model=model,
        freeze_layer_names=[],
    )
    return BaseTrainer.build_optimizer(trainer, model, "auto", iterations=settings["iterations"])


def _config(name: str) -> dict[str, Any]:
    from ultralytics.nn.tasks import yaml_model_load

    file = name if name.endswith((".yaml", ".yml")) else f"{name.removesuffix('.pt')}.yaml"
    try:
        config: dict[str, Any] = yaml_model_load(file)
    except (FileNotFoundError, OSError, SystemExit) as error:
        raise InputError(
            f"Ultralytics has no model '{name}': expected one such as yolo11s, yolov8n-seg ({error})"
        ) from None
    return config


def _code(name: str) -> Sequence[str]:
    return ["# in Ultralytics itself:", f"# YOLO({name + '.pt'!r}).train(data=..., batch=..., imgsz=...)"]


def _ultralytics() -> Any:
    os.environ.setdefault("YOLO_OFFLINE", "true")
    os.environ.setdefault("YOLO_VERBOSE", "false")
    try:
        import ultralytics
        import ultralytics.nn.tasks
    except ImportError as error:
        raise InputError(
            "ultralytics: jobs need Ultralytics, which is not installed here: pip install 'oomproof[ultralytics]', or "
            "ultralytics>=8.3"
        ) from error
    logging.getLogger("ultralytics").setLevel(logging.ERROR)  # its greetings have no place in a report
    return ultralytics
