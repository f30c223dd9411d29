"""nn.LSTM, nn.GRU and nn.RNN as a GPU runs them: one call of cuDNN, which keeps its reserve space for backward.

The CPU sends an LSTM to oneDNN, layer by layer, and unrolls the others into an operation a gate and time step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from oomproof.frameworks.torch import cudnn_rnn

_MODES = {"rnn_relu": 0, "rnn_tanh": 1, "lstm": 2, "gru": 3}
"""cuDNN's numbers"""


def install(library: torch.library.Library) -> None:
    for name, mode in _MODES.items():
        library.impl(f"{name}.input", _whole(mode), "AutogradCPU")
        library.impl(f"{name}.data", _make_packed_kernel(mode), "AutogradCPU")


def _whole(mode: int) -> Callable[..., Any]:
    """All sequences of one length."""

    def run(  # noqa: PLR0917 (the operation's own signature)
        x: torch.Tensor,
        state: Any,
        weights: Sequence[torch.Tensor],
        biases: bool,
        layers: int,
        dropout: float,
        train: bool,
        both_ways: bool,
        batch_first: bool,
    ) -> Any:
        return _run(mode, x, state, weights, biases=biases, how=(layers, batch_first, dropout, train, both_ways, []))

    return run


def _make_packed_kernel(mode: int) -> Callable[..., Any]:
    """Sequences of several lengths, one time step after the other."""

    def run(  # noqa: PLR0917 (the operation's own signature)
        x: torch.Tensor,
        running: torch.Tensor,
        state: Any,
        weights: Sequence[torch.Tensor],
        biases: bool,
        layers: int,
        dropout: float,
        train: bool,
        both_ways: bool,
    ) -> Any:
        first = state[0] if isinstance(state, (list, tuple)) else state
        steps = [first.shape[1]] * running.shape[0]  # how many sequences run at each step is not looked at
        return _run(mode, x, state, weights, biases=biases, how=(layers, False, dropout, train, both_ways, steps))

    return run


def _run(mode: int, x: torch.Tensor, state: Any, weights: Sequence[torch.Tensor], *, biases: bool, how: Any) -> Any:
    hx, cx = state if isinstance(state, (list, tuple)) else (state, None)
    hidden = (hx if cx is None else cx).shape[2]
    projected = hx.shape[2] if hx.shape[2] != hidden else 0
    if torch.is_autocast_enabled("cpu"):
        # CUDA autocast casts at this call (ATen/cudnn/AutocastRNN.cpp), weights into a buffer of their own.
        dtype = torch.get_autocast_dtype("cpu")
        x, hx, cx = (each if each is None else _to_half(each, dtype) for each in (x, hx, cx))
        weights = [_to_half(weight, dtype) for weight in weights]
    each_layer = (4 if biases else 2) + bool(projected)
    out = cudnn_rnn(x, list(weights), each_layer, None, hx, cx, mode, hidden, projected, *how, None)
    return out[:2] if cx is None else out[:3]


def _to_half(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return tensor.to(dtype) if tensor.dtype is torch.float32 else tensor
