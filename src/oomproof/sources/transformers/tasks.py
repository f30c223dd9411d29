"""What a model of transformers is trained for: its head, and a batch of the kind that the head takes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from oomproof.sources.job import Settings


@dataclass(frozen=True)
class Task:
    name: str
    mapping: str
    """the table of transformers that says which kinds of configs have such a head"""
    auto: str
    """the class that builds it"""
    batch: Callable[[Settings, Any], dict[str, Any]]
    """from the settings and the config's vocabulary"""
    images: bool = True
    objects: bool = False


def _pixels(settings: Settings) -> Any:
    import torch

    return torch.rand(settings["batch"], 3, *settings["image_size"])


def _detection(settings: Settings, config: Any) -> dict[str, Any]:
    import torch

    def target() -> dict[str, Any]:
        sides = torch.rand(settings["boxes"], 2) * 0.3 + 0.02
        centres = torch.rand(settings["boxes"], 2) * (1 - sides) + sides / 2
        return {
            "class_labels": torch.randint(0, settings["classes"], (settings["boxes"],)),
            "boxes": torch.cat([centres, sides], 1),
        }

    pixels = _pixels(settings)
    mask = torch.ones(settings["batch"], *settings["image_size"], dtype=torch.long)
    return {"pixel_values": pixels, "pixel_mask": mask, "labels": [target() for _ in range(settings["batch"])]}


def _instances(settings: Settings, config: Any) -> dict[str, Any]:
    import torch

    count, size = settings["boxes"], settings["image_size"]
    return {
        "pixel_values": _pixels(settings),
        "mask_labels": [torch.randint(0, 2, (count, *size)).float() for _ in range(settings["batch"])],
        "class_labels": [torch.randint(0, settings["classes"], (count,)) for _ in range(settings["batch"])],
        "pixel_mask": torch.ones(settings["batch"], *size, dtype=torch.long),
    }


def _semantic(settings: Settings, config: Any) -> dict[str, Any]:
    import torch

    labels = torch.randint(0, settings["classes"], (settings["batch"], *settings["image_size"]))
    return {"pixel_values": _pixels(settings), "labels": labels}


def _classification(settings: Settings, config: Any) -> dict[str, Any]:
    import torch

    return {"pixel_values": _pixels(settings), "labels": torch.randint(0, settings["classes"], (settings["batch"],))}


def _tokens(settings: Settings, config: Any) -> dict[str, Any]:
    import torch

    tokens = torch.randint(1, config.vocab_size, (settings["batch"], settings["tokens"]))
    return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}


def _sequence(settings: Settings, config: Any) -> dict[str, Any]:
    import torch

    return {**_tokens(settings, config), "labels": torch.randint(0, settings["classes"], (settings["batch"],))}


def _causal(settings: Settings, config: Any) -> dict[str, Any]:
    batch = _tokens(settings, config)
    return {**batch, "labels": batch["input_ids"].clone()}


TASKS = (
    Task(
        "detection", "MODEL_FOR_OBJECT_DETECTION_MAPPING_NAMES", "AutoModelForObjectDetection", _detection, objects=True
    ),
    Task(
        "instances",
        "MODEL_FOR_UNIVERSAL_SEGMENTATION_MAPPING_NAMES",
        "AutoModelForUniversalSegmentation",
        _instances,
        objects=True,
    ),
    Task("semantic", "MODEL_FOR_SEMANTIC_SEGMENTATION_MAPPING_NAMES", "AutoModelForSemanticSegmentation", _semantic),
    Task("images", "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES", "AutoModelForImageClassification", _classification),
    Task("causal", "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES", "AutoModelForCausalLM", _causal, images=False),
    Task(
        "text",
        "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES",
        "AutoModelForSequenceClassification",
        _sequence,
        images=False,
    ),
)
_USUAL_FOR = {"segformer": "semantic", "bert": "text", "distilbert": "text", "roberta": "text", "detr": "detection"}


def tasks_of(config: Any) -> list[Task]:
    """The tasks that a config's kind has a head for, the usual one first."""
    from transformers.models.auto import modeling_auto

    named = (getattr(config, "architectures", None) or [""])[0]
    found = [task for task in TASKS if config.model_type in getattr(modeling_auto, task.mapping)]

    def rank(task: Task) -> bool:
        head = getattr(modeling_auto, task.mapping)[config.model_type]
        heads = head if isinstance(head, (list, tuple)) else (head,)
        return not (named in heads if named else _USUAL_FOR.get(config.model_type) == task.name)

    return sorted(found, key=rank)


def keep_accepted(model: Any, batch: dict[str, Any]) -> dict[str, Any]:
    """What the model's forward takes of a batch: not every detector knows a mask of pixels."""
    names = inspect.signature(model.forward).parameters
    return {name: value for name, value in batch.items() if name in names}
