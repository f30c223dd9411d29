"""Recurrent layers on a GPU: what cuDNN keeps of a forward pass for the backward one, and its workspace.

cuDNN runs all layers, directions and time steps of an RNN in one call. It keeps gates and states in an opaque buffer,
the reserve space, whose size only the library can tell (cudnnGetRNNTempSpaceSizes). Two published sizes say what is in
it; docs/accuracy.md has them, and what they leave open.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from oomproof.memory.timeline import Timeline

FORWARD, BACKWARD = "_cudnn_rnn", "_cudnn_rnn_backward"
"""PyTorch's names for the two calls"""
TF_FORWARD, TF_BACKWARD = "CudnnRNNV3", "CudnnRNNBackpropV3"
"""TensorFlow's"""
_FORWARDS = (FORWARD, TF_FORWARD)

KEPT = {"rnn": 1, "lstm": 5, "gru": 6}
"""Numbers that the reserve space has for every layer, direction, sequence, time step and hidden unit; besides, every
layer but the last keeps its output. An LSTM of 4 layers: 736,000,000 bytes, a GRU of the same size 864,000,000 (23 and
27 numbers; github.com/pytorch/pytorch/issues/2895); an LSTM of one layer in fp16: 24,576,016 bytes (5 numbers;
tts_angular_training.txt in PyTorch's benchmarks/dynamo). That of a plain RNN is reckoned from nvidia-smi's figures in
the same issue."""

WIDER = 1.5
"""The upper figure for what is kept. A guess: no published size covers two directions, dropout between layers, or the
kernels for small hidden sizes."""

WORKSPACE = 1.5
"""Workspace for a byte of weights: 1.46 (LSTM) and 1.45 (GRU) in issue 2895, on a P100 with cuDNN of 2017."""
WORKSPACE_AT_MOST = 2
"""and at most, with the gates of one layer: a guess"""

NOTE = (
    "recurrent layers: cuDNN does not say how much it keeps for the backward pass; it is reckoned from published "
    f"sizes, and the upper figure adds {WIDER - 1:.0%} to it"
)


@dataclass(frozen=True)
class Recurrent:
    op: str
    copies: int
    """bytes of tensors that the framework lays out anew for the call"""
    weights: int
    gates: int
    """bytes of the gates of one layer"""


def reserve_bytes(cell: str, *, layers: int, numbers: int, item: int) -> int:
    """Size of the reserve space; ``numbers`` are hidden units times directions times time steps of all sequences."""
    return numbers * (layers * KEPT[cell] + layers - 1) * item


def price(call: Recurrent) -> tuple[int, int, int]:
    """(expected, low, high) bytes while the call runs."""
    most = call.copies + WORKSPACE_AT_MOST * call.weights + call.gates
    return call.copies + int(WORKSPACE * call.weights), call.copies, most


def widen_reserves(timeline: Timeline) -> Timeline:
    """The history in which everything that forward calls made (reserve spaces, and the far smaller results) is as large
    as it can be."""
    calls = [number for number, name in enumerate(timeline.ops) if name in _FORWARDS]
    if not calls:
        return timeline
    made = np.isin(timeline.op, calls)
    return replace(timeline, bytes=np.where(made, (timeline.bytes * WIDER).astype(np.int64), timeline.bytes))


def notes(timeline: Timeline) -> tuple[str, ...]:
    return (NOTE,) if not set(_FORWARDS).isdisjoint(timeline.ops) and not timeline.about.recorded else ()
