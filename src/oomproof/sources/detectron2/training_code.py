"""The lines of Python that a plan needs beside its config, since Detectron2 has no keys for them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from oomproof.sources.job import Settings

_ABSENT = object()


def training_code(settings: Settings, target: Path, *, own: bool, there: Mapping[str, Any]) -> list[str]:
    """What to do with the written config; ``own``: it is the file that the training reads already. ``there`` are
    settings that the code of the script has by itself: these lines it has already."""
    new = {name: value for name, value in settings.items() if there.get(name, _ABSENT) != value}
    count, stages = new.get("accumulate", 1), new.get("checkpoint", "none")
    names = [name for name, wanted in (("Accumulate", count > 1), ("checkpoint_stages", stages != "none")) if wanted]
    lines = []
    if count > 1:
        whole = count * settings["SOLVER.IMS_PER_BATCH"]
        instead = f", instead of Accumulate({there['accumulate']})" if "accumulate" in there else ""
        lines.append(
            f"trainer.register_hooks([Accumulate({count})])  # {whole} images for each update, as the schedule expects"
            f"{instead}"
        )
    if stages != "none":
        lines.append(f"checkpoint_stages(trainer.model, {stages!r})")
    if new.get("zero_grad") == "before_forward":
        lines.append(
            "trainer._trainer.zero_grad_before_forward = True  # Detectron2 newer than 0.6, or with Accumulate"
        )
    if new.get("precision") == "bf16":
        lines.append("trainer._trainer.precision = torch.bfloat16  # Detectron2 newer than 0.6")
    told = [f"from oomproof.run.detectron2 import {', '.join(names)}", ""] if names else []
    told += [] if own else [f"cfg.merge_from_file({str(target)!r})"]
    if lines:
        told += ["trainer = DefaultTrainer(cfg)  # or your own", *lines, "trainer.train()"]
    told = ["", "In your training:", "", *told] if told else []
    return [*told, *_environment(settings)]


def _environment(settings: Settings) -> list[str]:
    lines = []
    if settings["expandable_segments"]:
        lines.append("Start it with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True in the environment.")
    if settings["gradient_as_bucket_view"]:
        lines.append("Build its model with create_ddp_model(model, gradient_as_bucket_view=True).")
    return ["", *lines] if lines else []
