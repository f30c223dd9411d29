"""What is needed to price the memory that cuDNN's recurrent layers take while they run."""

from __future__ import annotations

from typing import Any

import torch

from oomproof.memory.scratch.recurrent import BACKWARD, FORWARD


def recurrent_forward(args: Any) -> dict[str, Any]:
    x, weights, batch_first, both_ways, lengths = args[0], args[1], args[10], args[13], args[14]
    copies = _bytes(x) if batch_first and not lengths else 0
    return _call(FORWARD, x, weights, both_ways=both_ways, copies=copies)


def recurrent_backward(args: Any) -> dict[str, Any]:
    """PyTorch asks for the gradients of the input first, then for those of the weights, which exist from there on
    (ATen/native/cudnn/RNN.cpp); both times the input is laid out, the first time the output's gradient as well."""
    x, weights, each_layer, output, gradient = args[0], args[1], args[2], args[6], args[7]
    turned = args[14] and not args[18]
    made = sum(_bytes(weight) for weight in weights) if args[21][3] else 0
    of_output = _bytes(output) * (bool(turned) + (gradient is None))  # where only the last state is used, of zeros
    # cuDNN has biases always: without them its buffer of gradients is laid out otherwise, and is copied.
    unlike = made if each_layer in (2, 3) else 0
    copies = (_bytes(x) if turned else 0) + max(unlike, of_output - made)
    return _call(BACKWARD, x, weights, both_ways=args[17], copies=copies)


def _call(name: str, x: torch.Tensor, weights: list[torch.Tensor], *, both_ways: bool, copies: int) -> dict[str, Any]:
    gates = weights[0].shape[0] * (2 if both_ways else 1)
    return {
        "op": name,
        "copies": copies,
        "weights": sum(_bytes(weight) for weight in weights),
        "gates": x.numel() // max(1, x.shape[-1]) * gates * x.element_size(),
    }


def _bytes(tensor: torch.Tensor) -> int:
    return int(tensor.numel() * tensor.element_size())
