"""Memory as scalars of TensorBoard, where it or tensorboardX is installed."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from oomproof.errors import CannotDo

_SHOWN = ("device", "device_peak", "host", "workers", "shm")
_MIB = 1 << 20


class Scalars:
    """``add(line)`` writes what a monitor's line has in bytes, in MiB, as memory/NAME."""

    def __init__(self, writer: Any, own: bool) -> None:
        self._writer, self._own = writer, own

    def add(self, line: Mapping[str, Any]) -> None:
        for name in _SHOWN:
            if name in line:
                self._writer.add_scalar(f"memory/{name}_MiB", line[name] / _MIB, line["step"])

    def close(self) -> None:
        self._writer.flush()
        if self._own:
            self._writer.close()


def open_scalars(where: Any) -> Scalars:
    """``where``: a folder, or anything with ``add_scalar``, which stays its owner's to close."""
    if hasattr(where, "add_scalar"):
        return Scalars(where, own=False)
    for module in ("torch.utils.tensorboard", "tensorboardX"):
        try:
            writer = import_module(module).SummaryWriter
        except ImportError:
            continue
        return Scalars(writer(str(where)), own=True)
    raise CannotDo(
        "tensorboard=FOLDER needs TensorBoard: pip install tensorboard, or give a SummaryWriter, or leave it"
    )
