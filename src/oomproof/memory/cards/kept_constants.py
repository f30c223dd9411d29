"""What `oomproof measure --keep` found out about this machine's GPUs, in the user's configuration folder.

One file, ``$XDG_CONFIG_HOME/oomproof/gpus.json`` (or ``~/.config/...``; on Windows under ``%APPDATA%``). Forecasts
``--on this`` read it; nothing else does, and `oomproof measure --forget` removes it.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from oomproof.errors import DamagedFile
from oomproof.files.replacing import new_content

MOST = 16 << 30
"""bytes that a context or workspace may have; more is not a measurement"""


@dataclass(frozen=True)
class Constants:
    """Bytes that a training holds on one GPU besides its tensors, as they were measured."""

    context: int
    """the CUDA context with the kernel images that were loaded: what the driver counts, less what PyTorch reserved"""
    workspace: int
    """what libraries keep in PyTorch's allocator once every tensor is gone: cuBLAS above all"""
    job: str
    """which job was measured"""
    versions: str
    """PyTorch's and the driver's: others have other kernels"""


def constants_file() -> Path:
    if sys.platform == "win32":
        home = os.environ.get("APPDATA", "")
    else:
        home = os.environ.get("XDG_CONFIG_HOME", "")
    # The XDG specification: a path that is not absolute is to be ignored.
    base = Path(home) if home and Path(home).is_absolute() else Path.home() / ".config"
    return base / "oomproof" / "gpus.json"


def read_constants() -> dict[str, Constants]:
    """GPU's name -> what was kept of it."""
    place = constants_file()
    try:
        entries = json.loads(place.read_text("utf-8"))
        return {str(name): _check_entry(entry) for name, entry in entries.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise DamagedFile(
            f"{place} does not hold what `oomproof measure --keep` writes ({type(error).__name__}); "
            "`oomproof measure --forget` removes it"
        ) from None


def keep_constants(gpu: str, found: Constants) -> Path:
    place = constants_file()
    entries = {name: asdict(entry) for name, entry in read_constants().items()} | {
        gpu: asdict(_check_entry(asdict(found)))
    }
    place.parent.mkdir(parents=True, exist_ok=True)
    with new_content(place) as file:
        file.write(json.dumps(entries, indent=2).encode() + b"\n")
    return place


def forget_constants() -> Path | None:
    """The file that was removed; None where there was none."""
    place = constants_file()
    try:
        place.unlink()
    except FileNotFoundError:
        return None
    return place


def _check_entry(entry: dict[str, Any]) -> Constants:
    found = Constants(**entry)
    for size in (found.context, found.workspace):
        if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= MOST:
            raise ValueError(f"not a size in bytes: {size!r}")
    return found
