"""What cuDNN's recurrent layers make of shapes.

PyTorch's own rule (torch/_meta_registrations.py, 2.14) leaves the reserve space empty, and backward has none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from oomproof.frameworks.torch import cudnn_rnn, cudnn_rnn_backward
from oomproof.memory.scratch.recurrent import reserve_bytes
from oomproof.trace.torch.shapes.forms import Form, form_of, in_order

CELLS = ("rnn", "rnn", "lstm", "gru")
"""by cuDNN's number of the mode: ReLU, tanh, LSTM, GRU"""


def _forward(args: Any, kwargs: Any) -> Any:
    """(output, hidden state, cell state, reserve space, weight buffer)"""
    x, _, _, _, hx, cx, mode, hidden, projected, layers, batch_first, _, train, both_ways, lengths, _ = args
    directions = 2 if both_ways else 1
    output = _rows((*x.shape[:-1], directions * (projected or hidden)), x.dtype)
    numbers = x.numel() // max(1, x.shape[-1]) * directions * hidden
    reserve = reserve_bytes(CELLS[mode], layers=layers, numbers=numbers, item=x.element_size()) if train else 0
    return (
        _time_first(output) if batch_first and not lengths else output,
        _rows(hx.shape, hx.dtype),
        _rows((0,) if cx is None else cx.shape, hx.dtype),
        _rows((reserve,), torch.uint8),
        _rows((0,), x.dtype),  # nn.RNNBase has flattened its weights: the buffer is where they lie already
    )


def _backward(args: Any, kwargs: Any) -> Any:
    """Gradients of input, hidden state, cell state and weights: all are made, whether somebody wants them or not."""
    x, weights, hx, cx, batch_first, lengths = args[0], args[1], args[4], args[5], args[14], args[18]
    made = _rows(x.shape, x.dtype)
    wanted = args[21][3]
    return (
        _time_first(made) if batch_first and not lengths else made,
        _rows(hx.shape, hx.dtype),
        _rows((0,) if cx is None else cx.shape, hx.dtype),
        [form_of(weight) for weight in weights] if wanted else [],
    )


def _rows(shape: Any, dtype: torch.dtype) -> Form:
    return Form(torch.Size(shape), in_order(shape), dtype)


def _time_first(form: Form) -> Form:
    """The same shape, sequences first; in memory, time steps come first."""
    sequences, _, units = form.shape
    return Form(form.shape, (units, sequences * units, 1), form.dtype)


RECURRENT_RULES: dict[Any, Callable[[Any, Any], Any]] = {cudnn_rnn: _forward, cudnn_rnn_backward: _backward}
