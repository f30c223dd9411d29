"""nn.LSTMCell and nn.GRUCell as a GPU runs them: two matrix products and one fused kernel.

The CPU applies gate by gate, in place. On CUDA (aten/src/ATen/native/RNN.cpp and cuda/RNN.cu, 2.14) the gates of input
and hidden state stay apart, the kernel fills a workspace, and autograd keeps all three for backward.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from oomproof.frameworks.torch import fused_gru_cell, fused_lstm_cell


def install(library: torch.library.Library) -> None:
    library.impl("lstm_cell", _lstm_cell, "AutogradCPU")
    library.impl("gru_cell", _gru_cell, "AutogradCPU")


def _lstm_cell(  # noqa: PLR0917 (the operation's own signature)
    x: torch.Tensor,
    state: Sequence[torch.Tensor],
    of_input: torch.Tensor,
    of_hidden: torch.Tensor,
    input_bias: torch.Tensor | None = None,
    hidden_bias: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    hidden, cell = state
    gates = torch.matmul(x, of_input.t()), torch.matmul(hidden, of_hidden.t())
    hidden, cell, _ = fused_lstm_cell(*gates, cell, input_bias, hidden_bias)
    return hidden, cell


def _gru_cell(  # noqa: PLR0917 (the operation's own signature)
    x: torch.Tensor,
    hidden: torch.Tensor,
    of_input: torch.Tensor,
    of_hidden: torch.Tensor,
    input_bias: torch.Tensor | None = None,
    hidden_bias: torch.Tensor | None = None,
) -> torch.Tensor:
    gates = torch.matmul(x, of_input.t()), torch.matmul(hidden, of_hidden.t())
    hidden, _ = fused_gru_cell(*gates, hidden, input_bias, hidden_bias)
    return hidden
