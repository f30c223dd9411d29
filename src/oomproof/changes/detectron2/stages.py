"""Stages of a built Detectron2 model that are computed again in backward instead of being kept."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from oomproof.changes.torch.recompute import recompute
from oomproof.errors import InputError, did_you_mean


def checkpoint_stages(model: torch.nn.Module, stages: str | Iterable[str]) -> list[str]:
    """Checkpoints the stages of a model by one call before it is trained; returns their full paths.

    A stage is named as in its ResNet (``res4``) or by a path (``backbone.bottom_up.res4``); ``res4:1`` runs one image
    at a time, which keeps less. Gradients stay as they are, weights keep their names, and evaluation is left alone.
    Several stages are a list, or one text with commas.
    """
    texts = stages.split(",") if isinstance(stages, str) else list(stages)
    paths = [path for path, module in model.named_modules() if path and module is not model]
    chosen: list[str] = []
    for text in texts:
        name, colon, chunk = str(text).strip().partition(":")
        # A whole path means that module alone, though others may be called the same inside theirs.
        found = [path for path in paths if path in (name, f"module.{name}")]
        found = found or [path for path in paths if name and path.endswith(f".{name}")]
        if not found:
            known = _stages(paths)
            hint = f"; it has {', '.join(known)}" if known else did_you_mean(name, paths)
            raise InputError(f"checkpoint_stages: the model has no stage '{name}'{hint}")
        chosen += [f"{path}{colon}{chunk}" for path in found]
    if not chosen:
        raise InputError("checkpoint_stages: name at least one stage, such as res4; got none")
    return recompute(model, ",".join(chosen))


def _stages(paths: list[str]) -> list[str]:
    return [path for path in paths if path.rpartition(".")[2] in ("stem", "res2", "res3", "res4", "res5")]
