"""A training script that makes a Detectron2 config (``cfg``), read as a syntax tree and never run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from oomproof.sources.job import Job


def is_script(path: Path) -> bool:
    return False


def open_script(path: Path, overrides: Sequence[str]) -> Job:
    raise NotImplementedError
