"""How large images are when they reach the model, and which fields say so."""

from __future__ import annotations

from typing import Any

from oomproof.errors import InputError
from oomproof.sources.tf_object_detection.config.config import Config

Size = tuple[int, int]
_KINDS = ("fixed_shape_resizer", "keep_aspect_ratio_resizer")


def resizer_path(config: Config) -> str:
    """Of the resizer that is chosen."""
    model = config.which("model")
    start = f"model.{model}.image_resizer"
    kind = config.which(start)
    if kind not in _KINDS:
        raise InputError(
            f"{config.where(start)}: {start} {{ {kind or '...'} }} leaves images at sizes of their own; expected "
            "fixed_shape_resizer or keep_aspect_ratio_resizer, or say --set image_size=HEIGHTxWIDTH or --records FILES"
        )
    return f"{start}.{kind}"


def require_identity(config: Config) -> None:
    """InputError where not even the data say how large images get."""
    start = f"model.{config.which('model')}.image_resizer"
    if config.which(start) != "identity_resizer":
        resizer_path(config)


def has_size(config: Config) -> bool:
    """Whether the resizer says how large images get."""
    return config.which(f"model.{config.which('model')}.image_resizer") in _KINDS


def size_of(config: Config) -> Size:
    """Height and width of the largest images that the model gets."""
    path = resizer_path(config)
    if path.endswith("fixed_shape_resizer"):
        return _side(config, f"{path}.height"), _side(config, f"{path}.width")
    short, long = _side(config, f"{path}.min_dimension"), _side(config, f"{path}.max_dimension")
    return (long, long) if config.value(f"{path}.pad_to_max_dimension") else (short, long)


def _side(config: Config, path: str) -> int:
    pixels: int = config.value(path)
    if pixels < 1:
        raise InputError(f"{config.where(path)}: {path}: expected 1 pixel or more, got {pixels}")
    return pixels


def fields_for_size(config: Config, size: Size) -> dict[str, Any]:
    """Values by path that make images of this size; none where they are so already."""
    if not has_size(config) or size == size_of(config):
        return {}
    path = resizer_path(config)
    if path.endswith("fixed_shape_resizer"):
        return {f"{path}.height": size[0], f"{path}.width": size[1]}
    short, long = sorted(size)
    if config.value(f"{path}.pad_to_max_dimension"):
        before = config.value(f"{path}.max_dimension")
        short = max(1, round(config.value(f"{path}.min_dimension") * long / before))
    return {f"{path}.min_dimension": short, f"{path}.max_dimension": long}
