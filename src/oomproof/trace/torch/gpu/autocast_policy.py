"""CUDA's autocast policy on the CPU's dispatch key.

The tracer runs on fake CPU tensors, but a forecast for a GPU must cast as a GPU casts: softmax, norms, exponentials
and sums in fp32, which CPU autocast leaves in half. The tables state which operation CUDA autocast treats how, as
declared in ATen/autocast_mode.h of torch 2.14 (a test compares them with the installed header). Of them, those are in
force that the installed PyTorch has a kernel of CUDA autocast for: ``rms_norm`` came between 2.8 and 2.14. What both
devices treat alike needs no entry, and what only the CPU treats specially is let through.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

import torch

from oomproof.frameworks.torch import WithoutKeys, autocast_keys, kernels_of_key
from oomproof.trace.torch.values import leaves, map_leaves

_KEY = "AutocastCPU"
_HALF = (torch.float16, torch.bfloat16)

FP32 = (
    "acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log2", "log1p", "reciprocal", "rsqrt", "sinh",
    "tan", "pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar", "softplus", "layer_norm", "native_layer_norm",
    "rms_norm", "group_norm", "frobenius_norm.dim", "nuclear_norm", "nuclear_norm.dim", "cosine_similarity", "dist",
    "pdist", "renorm", "logsumexp", "upsample_nearest1d", "_upsample_nearest_exact1d", "upsample_nearest2d",
    "_upsample_nearest_exact2d", "upsample_nearest3d", "_upsample_nearest_exact3d", "upsample_linear1d",
    "upsample_bilinear2d", "_upsample_bilinear2d_aa", "upsample_trilinear3d", "upsample_bicubic2d",
    "_upsample_bicubic2d_aa",
)  # fmt: skip
"""inputs are cast to fp32"""

FP32_RESULT = (
    "softmax.int", "log_softmax.int", "cumprod", "cumsum", "linalg_vector_norm", "linalg_matrix_norm",
    "linalg_matrix_norm.str_ord", "sum", "sum.dim_IntList",
)  # fmt: skip
"""inputs stay half, the result is fp32 (through the operation's own dtype argument)"""

HALF = (
    "_convolution", "convolution", "addmv", "addr", "mv", "einsum", "chain_matmul", "linalg_multi_dot", "lstm_cell",
    "gru_cell", "rnn_tanh_cell", "rnn_relu_cell", "_thnn_fused_lstm_cell", "_thnn_fused_gru_cell",
)  # fmt: skip
"""inputs are cast to half; the CPU's own policy already covers convolutions, linear and matrix products"""

WIDEST = (
    "addcdiv", "addcmul", "atan2", "bilinear", "cross", "dot", "vdot", "grid_sampler", "index_put", "tensordot",
    "scatter_add",
)  # fmt: skip
"""inputs are cast to the widest type among them"""

FP32_NORM = ("norm.Scalar", "norm.ScalarOpt_dim")
"""redispatched to the overload that takes a dtype"""


def install(library: torch.library.Library) -> None:
    """Registers the policy; destroying the library takes it back."""
    on_gpu = set(kernels_of_key("AutocastCUDA"))
    for names, kernel in ((FP32, _fp32), (FP32_RESULT, _fp32_result), (HALF, _half), (WIDEST, _widest)):
        for name in in_force(names, on_gpu):
            library.impl(name, kernel(_overload(name)), _KEY)
    for name in in_force(FP32_NORM, on_gpu):
        library.impl(name, _fp32_norm, _KEY)
    for name in kernels_of_key(_KEY):
        if name.startswith("aten::") and name not in on_gpu:
            base = name.removeprefix("aten::")
            if base not in (*FP32, *FP32_RESULT, *HALF, *WIDEST, *FP32_NORM, *_CPU_SPELLINGS):
                library.impl(base, torch.library.fallthrough_kernel, _KEY)


def in_force(names: Iterable[str], on_gpu: Collection[str]) -> list[str]:
    """Those that the installed PyTorch has a kernel for among ``on_gpu``, its kernels of CUDA autocast."""
    return [name for name in names if f"aten::{name}" in on_gpu]


_CPU_SPELLINGS = ("conv1d.padding", "conv2d.padding", "conv3d.padding")
"""overloads that CUDA reaches through conv1d/2d/3d: half on both"""


def _overload(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


def _fp32(op: Any) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        with WithoutKeys(autocast_keys):
            return op(*map_leaves(_to_float32, args), **map_leaves(_to_float32, kwargs))

    return kernel


def _fp32_result(op: Any) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        with WithoutKeys(autocast_keys):
            given = kwargs.get("dtype") is not None or any(isinstance(leaf, torch.dtype) for leaf in args)
            if args[0].dtype in _HALF and not given:
                kwargs = {**kwargs, "dtype": torch.float32}
            return op(*args, **kwargs)

    return kernel


def _half(op: Any) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        dtype = torch.get_autocast_dtype("cpu")

        def to_half(leaf: Any) -> Any:
            float32 = isinstance(leaf, torch.Tensor) and leaf.dtype is torch.float32
            return leaf.to(dtype) if float32 else leaf

        with WithoutKeys(autocast_keys):
            return op(*map_leaves(to_half, args), **map_leaves(to_half, kwargs))

    return kernel


def _widest(op: Any) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        floats = [leaf for leaf in leaves((args, kwargs)) if isinstance(leaf, torch.Tensor) and _is_float(leaf)]
        wide = any(leaf.dtype is torch.float32 for leaf in floats)
        with WithoutKeys(autocast_keys):
            return op(
                *(map_leaves(_to_float32, args) if wide else args),
                **(map_leaves(_to_float32, kwargs) if wide else kwargs),
            )

    return kernel


def _fp32_norm(x: torch.Tensor, p: Any = 2, *more: Any, **kwargs: Any) -> Any:
    with WithoutKeys(autocast_keys):
        if x.dtype in _HALF:
            kwargs = {**kwargs, "dtype": torch.float32}
        return torch.ops.aten.norm(x, p, *more, **kwargs)


def _is_float(tensor: torch.Tensor) -> bool:
    return tensor.dtype is torch.float32 or tensor.dtype in _HALF


def _to_float32(leaf: Any) -> Any:
    half = isinstance(leaf, torch.Tensor) and leaf.dtype in _HALF
    return leaf.to(torch.float32) if half else leaf
