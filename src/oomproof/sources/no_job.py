"""What to say of a text that names no job: what was probably meant, where that can be told."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from oomproof.files.looking import is_there, say_why_no_file

_WEIGHTS = frozenset((".pt", ".pth", ".onnx", ".safetensors", ".ckpt", ".bin", ".tflite", ".engine", ".pb"))
_NAMED = ":NAME"
_SCRIPT = "-- python train.py"


def describe_no_job(text: str, forms: Sequence[str]) -> str:
    """The line of the error; ``forms`` is how jobs may look."""
    named = [form for form in forms if form.endswith(_NAMED)]
    suffix, there = Path(text).suffix, is_there(text)
    if suffix.lower() in _WEIGHTS and ":" not in text:
        start = f"'{text}' is not a job:" if there else f"{say_why_no_file(text)}, and"
        return (
            f"{start} weights do not say how they are trained; expected the model by its name "
            f"({_either(named)}), or the script that trains it ({_SCRIPT})"
        )
    if not there and shutil.which(text):
        return f"'{text}' is not a job by itself: a command goes behind --, at the end of the line, as in {_SCRIPT}"
    looks_like_a_name = not suffix and text.count("/") <= 1 and not text.startswith((".", "~", "/"))
    if text and not there and looks_like_a_name and not set(text) & set(": \\"):
        return (
            f"'{text}' is not a job: a model's name needs its source in front, "
            f"{_either([form.removesuffix('NAME') + text for form in named])}; a script goes behind --, {_SCRIPT}"
        )
    if (suffix or os.sep in text) and not there and ":" not in text:
        return f"{say_why_no_file(text)}: check the path, or see `oomproof check --help` for other jobs"
    return f"'{text}' is not a job: expected {_either(forms)}"


def _either(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"
