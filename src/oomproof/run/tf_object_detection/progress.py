"""A line every so many steps, with memory beside the loss; the same as scalars for TensorBoard."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from oomproof.run.tf_object_detection.folder import failing_in_a_line

TOTAL = "Loss/total_loss"
_GIB = 1 << 30


def peak_memory(tf: Any) -> tuple[int, str]:
    """Bytes at the most so far, and of what: the fullest GPU's allocator, or this process where there is no GPU."""
    devices = tf.config.list_logical_devices("GPU")
    if devices:
        peaks = [tf.config.experimental.get_memory_info(each.name.split("device:")[-1])["peak"] for each in devices]
        return max(peaks), "GPU"
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit, "process"


class ProgressWriter:
    def __init__(self, tf: Any, folder: Path, steps: int, every: int, first: int) -> None:
        self.tf, self.steps, self.every = tf, steps, every
        self.folder = folder / "train"  # where the API writes its own
        with self._failing_in_a_line():
            self.writer = tf.summary.create_file_writer(str(self.folder))
        self.at, self.began = first, time.monotonic()

    def is_due(self, step: int) -> bool:
        return step % self.every == 0 or step == self.steps

    def tell(self, step: int, losses: Mapping[str, float], rate: float) -> str:
        """The line, after the scalars are written."""
        now = time.monotonic()
        speed = (step - self.at) / max(now - self.began, 1e-9)
        self.at, self.began = step, now
        memory, of = peak_memory(self.tf)
        with self._failing_in_a_line(), self.writer.as_default(step=step):
            for name, value in {
                **losses, "learning_rate": rate, "steps_per_sec": speed, "memory/peak_gib": memory / _GIB,
            }.items():  # fmt: skip
                _write_scalar(self.tf, name, value)
            self.writer.flush()
        parts = ", ".join(f"{shorten(name)} {value:.4g}" for name, value in losses.items() if name != TOTAL)
        return (
            f"step {step}/{self.steps}  loss {losses[TOTAL]:.4f} ({parts})  learning rate {rate:.3g}  "
            f"{speed:.3g} steps/s  peak memory {memory / _GIB:.2f} GiB ({of})"
        )

    def close(self) -> None:
        with contextlib.suppress(self.tf.errors.OpError):  # of a full disk, which was said
            self.writer.close()

    def _failing_in_a_line(self) -> AbstractContextManager[None]:
        return failing_in_a_line(self.tf, f"what TensorBoard shows in {self.folder}", "make room, then start again")


def shorten(name: str) -> str:
    """Of the API's name of a loss, what tells it apart.

    >>> shorten("Loss/localization_loss"), shorten("Loss/RPNLoss/localization_loss")
    ('localization', 'RPN localization')
    """
    *_, stage, last = name.split("/")
    return f"{stage.removesuffix('Loss')} {last.removesuffix('_loss')}".strip()


def _write_scalar(tf: Any, name: str, value: float) -> None:
    """What tf.summary.scalar writes, which wants TensorBoard to be installed for it."""
    metadata = tf.compat.v1.SummaryMetadata(data_class=1)  # a scalar
    metadata.plugin_data.plugin_name = "scalars"
    tf.summary.write(name, tf.constant(value, tf.float32), metadata=metadata)
