"""How the API makes batches of a dataset's images: its resizer, its padding, and what augmentation may do to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oomproof.memory.batch_rule import BatchRule
from oomproof.memory.batch_spec import BatchSpec
from oomproof.sources.tf_object_detection.config.config import Config
from oomproof.sources.tf_object_detection.fields import BATCH
from oomproof.sources.tf_object_detection.planned_values import find_planned_values
from oomproof.sources.tf_object_detection.sizes import Size, has_size, resizer_path, size_of

_RESHAPING = ("crop", "pad", "scale_crop", "concat", "image_scale", "resize")
"""in names of data_augmentation_options after which an image has another shape than the record's"""
_DOUBLING = "random_self_concat_image"


def rule_of(config: Config, settings: Mapping[str, Any]) -> BatchRule:
    """The rule under ``settings``. Images without objects, and crowds, are trained on."""
    changed = config.with_values(find_planned_values(config, settings))
    kinds = augmentations(changed)
    most, unpadded = settings["max_number_of_boxes"], settings["unpad_groundtruth_tensors"]
    padded = not unpadded or _DOUBLING in kinds
    objects = f"no more than {most} objects of an image" if not padded else f"ground truth padded to {most} objects"
    reshaped = next((kind for kind in kinds if any(word in kind for word in _RESHAPING)), "")
    words, size, sides, longest = _find_resizing(changed, reshaped)
    return BatchRule(
        settings[BATCH] // settings["gpus"],
        f"{words}; {objects}",
        sides=sides,
        longest=longest,
        size=size,
        repeats=True,
        most_objects=most,
        padded_objects=padded,
        crowds=True,
        evaluates_stored=True,
        exact=not (size is not None and not is_fixed(changed)) and _DOUBLING not in kinds,
    )


def augmentations(config: Config) -> tuple[str, ...]:
    """The steps of data augmentation, by the names of their fields."""
    count = len(config.value("train_config.data_augmentation_options"))
    return tuple(config.which(f"train_config.data_augmentation_options[{number}]") for number in range(count))


def is_fixed(config: Config) -> bool:
    """Whether all images come out at one size, whatever their own."""
    if not has_size(config):
        return False
    path = resizer_path(config)
    return path.endswith("fixed_shape_resizer") or bool(config.value(f"{path}.pad_to_max_dimension"))


def stack(spec: BatchSpec) -> Size:
    """Height and width of a batch."""
    return max(each.height for each in spec.images), max(each.width for each in spec.images)


def differ(spec: BatchSpec) -> bool:
    return len({(each.height, each.width) for each in spec.images}) > 1


def resize_stored(rule: BatchRule, height: int, width: int) -> Size:
    """What the rule makes of one image."""
    import numpy as np

    from oomproof.memory.batch_rule import resize

    high, wide = resize(rule, np.array([height]), np.array([width]), max(rule.sides, default=0))
    return int(high[0]), int(wide[0])


def _find_resizing(config: Config, reshaped: str) -> tuple[str, Size | None, tuple[int, ...], int]:
    """Words, the one size, or the shorter side and the longest."""
    if not has_size(config):
        from oomproof.sources.tf_object_detection.sizes import require_identity

        require_identity(config)
        return "images as they are stored", None, (), 0
    size = size_of(config)
    if is_fixed(config):
        padding = "" if resizer_path(config).endswith("fixed_shape_resizer") else "padded "
        return f"images {padding}to {size[0]}x{size[1]}", size, (), 0
    if reshaped:
        return f"{reshaped} may give images any shape: {size[0]}x{size[1]} at the largest", size, (), 0
    return f"shorter side to {size[0]}, longer side no more than {size[1]}", None, (size[0],), size[1]
