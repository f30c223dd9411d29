"""What the fused kernels of nn.LSTMCell and nn.GRUCell make of shapes (aten/src/ATen/native/cuda/RNN.cu, 2.14)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from oomproof.frameworks.torch import (
    fused_gru_cell,
    fused_gru_cell_backward,
    fused_lstm_cell,
    fused_lstm_cell_backward,
)
from oomproof.trace.torch.shapes.forms import Form, in_order

_GRU_WORKSPACE, _GRU_GATES = 5, 3
"""numbers for every hidden unit: of the workspace (GRU_WORKSPACE_MULTIPLIER), and of the gates"""


def _lstm(args: Any, kwargs: Any) -> Any:
    """(hidden state, cell state, workspace)"""
    gates, _, cell = args[:3]
    return _rows(cell.shape, cell), _rows(cell.shape, cell), _rows(gates.shape, gates)


def _lstm_backward(args: Any, kwargs: Any) -> Any:
    """Gradients of gates, cell state and bias."""
    cell, workspace, biased = args[2], args[4], args[5]
    bias = _rows(workspace.shape[1:], workspace) if biased else None
    return _rows(workspace.shape, workspace), _rows(cell.shape, cell), bias


def _gru(args: Any, kwargs: Any) -> Any:
    """(hidden state, workspace)"""
    hidden = args[2]
    rows, units = hidden.shape
    return _rows(hidden.shape, hidden), _rows((rows, _GRU_WORKSPACE * units), hidden)


def _gru_backward(args: Any, kwargs: Any) -> Any:
    """Gradients of the input's gates, the hidden state's gates, the hidden state, and both biases."""
    gradient, biased = args[0], args[2]
    rows, units = gradient.shape
    gates = _rows((rows, _GRU_GATES * units), gradient)
    bias = _rows((_GRU_GATES * units,), gradient) if biased else None
    return gates, gates, _rows(gradient.shape, gradient), bias, bias


def _rows(shape: Any, like: torch.Tensor) -> Form:
    return Form(torch.Size(shape), in_order(shape), like.dtype)


CELL_RULES: dict[Any, Callable[[Any, Any], Any]] = {
    fused_lstm_cell: _lstm,
    fused_lstm_cell_backward: _lstm_backward,
    fused_gru_cell: _gru,
    fused_gru_cell_backward: _gru_backward,
}
