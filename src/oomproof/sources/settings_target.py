"""Writing settings back for jobs without a settings file of their own: a JSON file, and the code that reads it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from oomproof.sources.job import Settings

SUFFIX = ".oomproof.json"


def write_file(path: Path, job: str, settings: Settings, code: Sequence[str]) -> str:
    """Writes the settings and says what to paste; ``code`` makes the model and the loss."""
    from oomproof.run.settings_file import write_settings

    write_settings(path, job, "", settings, ())
    images = settings.get("batch", "N")
    whole = images * settings.get("accumulate", 1) if isinstance(images, int) else images
    lines = [
        *code,
        "optimizer = ...  # as you make it today",
        f"step = oomproof.Step(model, optimizer, loss, {str(path)!r})",
        f"for batch in loader:  # batches of {whole} images, as before: the step splits them",
        "    step(batch)",
    ]
    return "\n".join([f"wrote {path}. In your training:", "", "import oomproof", *lines, ""])
