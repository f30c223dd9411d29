"""The lines that train a PyTorch job with settings from a file, for a user to paste."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from oomproof.sources.job import Settings


def write_training_code(
    settings: Settings, path: Path, code: Sequence[str], *, own_step: bool = False, own: Collection[str] = ()
) -> list[str]:
    """``code`` makes the model and the loss, or a whole step. ``own`` are settings that mean what the job means by
    them, even if every training has one of that name."""
    usual = settings.without(*own)
    lines = [*_around(usual), *code, *_narrower(usual), _optimizer(usual)]
    if own_step:
        return [*lines, "for batch in loader:", "    step(model, batch, optimizer)"]
    return [
        "import oomproof",
        *lines,
        f"step = oomproof.Step(model, optimizer, loss, {str(path)!r})",
        f"for batch in loader:  # {_batches(settings)}",
        "    step(batch)",
    ]


def _around(settings: Settings) -> list[str]:
    """What a plan may have changed about the run around the step, which no step can set."""
    lines = []
    if settings.get("expandable_segments"):
        lines.append("# start it with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True in the environment")
    if settings.get("gradient_as_bucket_view"):
        lines.append("# give DistributedDataParallel gradient_as_bucket_view=True")
    if settings.get("workers"):
        ready = settings.get("prefetch_factor", 2)
        lines.append(f"# give DataLoader num_workers={settings['workers']}, prefetch_factor={ready}")
    return lines


def _optimizer(settings: Settings) -> str:
    name = settings.get("optimizer", "own")
    if name == "own":
        return "optimizer = ...  # as you make it today"
    return f"optimizer = ...  # {name}, as the settings have it; it needs a learning rate of its own"


def _narrower(settings: Settings) -> list[str]:
    width = settings.get("width", 1.0)
    return [f"model = oomproof.slim(model, {width}, lambda net: loss(net, next(iter(loader))))"] if width != 1 else []


def _batches(settings: Settings) -> str:
    """The effective batch, which no plan changes. Micro-batches may differ by an image, so that their number and the
    size of the largest do not tell it."""
    size, parts = settings.of("batch"), settings.get("accumulate", 1)
    if parts != 1:
        some = f"at most {size}" if isinstance(size, int) else "a part"
        return f"all images of an update: the step takes {some} at a time"
    return f"batches of {size} images" if isinstance(size, int) else "batches as they are"
