"""What a step does beside holding memory: the work of its operations, and the calls of its modules.

Both share the ticks of the Timeline they belong to. Time estimates and what-if questions read them («what if this
module were computed again in backward?»); a forecast does not, so they are not kept in files.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

FORMS = range(7)
PLAIN, HALF, CONVOLUTION, DEPTHWISE, HALF_CONVOLUTION, HALF_DEPTHWISE, GROUPED = FORMS
"""how an operation computes: as it is; as a matrix product in half precision; as an fp32 convolution, for which newer
GPUs use TF32; channel by channel, a convolution that is not a matrix product; both of these in half precision; or a few
channels at a time, in whatever precision"""


_COLUMNS = ("tick", "owner", "phase", "flops", "bytes", "form")


def _none() -> Ints:
    return np.zeros(0, dtype=np.int64)


@dataclass(frozen=True)
class Work:
    """One row an operation of the steady step that launches a kernel."""

    tick: Ints = field(default_factory=_none)
    owner: Ints = field(default_factory=_none)
    """index into the Timeline's owners"""
    phase: Ints = field(default_factory=_none)
    flops: Ints = field(default_factory=_none)
    """multiplications and additions of matrix products and convolutions; other arithmetic is not what takes time"""
    bytes: Ints = field(default_factory=_none)
    """read and written"""
    form: Ints = field(default_factory=_none)
    """PLAIN, HALF or one of the others"""

    def __len__(self) -> int:
        return len(self.tick)

    def where(self, rows: NDArray[np.bool_]) -> Work:
        return Work(**{name: getattr(self, name)[rows] for name in _COLUMNS})

    def join(self, more: Work) -> Work:
        return Work(**{name: np.concatenate([getattr(self, name), getattr(more, name)]) for name in _COLUMNS})

    def scale(self, factor: NDArray[np.float64] | float) -> Work:
        """The same operations on more or fewer numbers."""
        return replace(
            self,
            flops=np.rint(self.flops * factor).astype(np.int64),
            bytes=np.rint(self.bytes * factor).astype(np.int64),
        )


@dataclass(frozen=True)
class ModuleCall:
    """One forward call of a module in the steady step."""

    path: str
    enter: int
    leave: int
    """ticks"""
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    """rows of the Timeline: blocks that hold the tensors that went in and came out"""
    images: int
    """the size that dimension 0 of every tensor in and out has in common; 0 where there is none"""
    repeatable: bool
    """may be computed again: asks for no values, and writes into nothing it was given"""
    separable: bool
    """treats images one by one, as far as a trace can tell: no trained batch normalisation, no random numbers"""
    saves_output: bool = True
    """its last operation saves what it returns (a ReLU does, an addition does not): computed again, it runs to its
    end; else it stops where the last that is saved has come about"""
