"""Calls that may take scratch, as a Timeline notes them: convolutions, recurrent layers, and kernels known by how many
elements."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

from oomproof.errors import DamagedFile
from oomproof.memory.scratch.recurrent import BACKWARD, FORWARD, Recurrent

Shape = tuple[int, ...]
DEFORMED = frozenset({"deform_conv2d", "_deform_conv2d_backward"})
"""torchvision's deformable convolutions; ``elements`` are those of their columns and of a second result"""
PRODUCTS = frozenset({"mm", "addmm", "bmm", "baddbmm"})
"""matrix products; ``elements`` are those that are written out for them"""
MATRIX_EXPONENTIAL = "linalg_matrix_exp"
FOURIER = frozenset({"_fft_r2c", "_fft_c2r", "_fft_c2c"})
FACTORISED = frozenset({
    "_linalg_svd", "_linalg_eigh", "linalg_eig", "linalg_qr", "geqrf", "linalg_householder_product", "linalg_inv_ex",
    "linalg_lu_factor_ex", "linalg_ldl_factor_ex", "linalg_cholesky_ex", "linalg_lstsq", "linalg_pinv",
    "_linalg_solve_ex", "_linalg_det", "_linalg_slogdet",
})  # fmt: skip
"""linear algebra that a library does in workspace of its own"""
WRITTEN_OUT = frozenset({
    "mse_loss", "smooth_l1_loss", "huber_loss", "soft_margin_loss_backward", "binary_cross_entropy_with_logits",
    "logsumexp", "_trilinear", "multinomial", "dist", "roll", "_euclidean_dist", "scatter_reduce",
    "scatter_reduce_", "index_reduce", "index_reduce_", "_safe_softmax",
})  # fmt: skip
"""operations that PyTorch writes in tensors inside one kernel; ``elements`` are the numbers of those"""
SOFTMAX_BACKWARD = "_softmax_backward_data"
LAID_OUT = frozenset({
    "_softmax", "_log_softmax", SOFTMAX_BACKWARD, "_log_softmax_backward_data", "native_layer_norm",
    "native_layer_norm_backward", "native_group_norm", "native_group_norm_backward", "native_batch_norm",
    "_native_batch_norm_legit", "native_batch_norm_backward", "roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool",
    "im2col", "col2im", "_cdist_forward", "max_pool2d_with_indices", "max_pool2d_with_indices_backward",
    "max_pool3d_with_indices", "max_pool3d_with_indices_backward", "avg_pool2d", "avg_pool2d_backward", "avg_pool3d",
    "avg_pool3d_backward", "_adaptive_avg_pool2d", "_adaptive_avg_pool2d_backward", "_adaptive_avg_pool3d",
    "_adaptive_avg_pool3d_backward", "adaptive_max_pool2d", "adaptive_max_pool2d_backward", "reflection_pad1d",
    "reflection_pad1d_backward", "reflection_pad2d", "reflection_pad2d_backward", "reflection_pad3d",
    "reflection_pad3d_backward", "replication_pad1d_backward", "replication_pad2d_backward",
    "replication_pad3d_backward", "upsample_nearest1d", "upsample_nearest1d_backward", "upsample_nearest2d",
    "upsample_nearest2d_backward", "upsample_nearest3d", "upsample_nearest3d_backward", "upsample_linear1d",
    "upsample_linear1d_backward", "upsample_bilinear2d", "upsample_bilinear2d_backward", "upsample_bicubic2d",
    "upsample_bicubic2d_backward", "upsample_trilinear3d", "upsample_trilinear3d_backward",
})  # fmt: skip
"""kernels that copy arguments which are not laid out as they read them; ``elements`` are those of a product that a GPU
writes out besides"""
FLASH_BACKWARD = "_scaled_dot_product_flash_attention_backward"
EFFICIENT_FORWARD = "_scaled_dot_product_efficient_attention"
EFFICIENT_BACKWARD = "_scaled_dot_product_efficient_attention_backward"
SORTED = frozenset({"index_put", "index_put_", "_index_put_impl_", "embedding_dense_backward"})
"""kernels that sort indices first; ``elements`` are the indices, ``item`` what is laid out for each"""
GATHERED = SORTED | frozenset({
    FLASH_BACKWARD, EFFICIENT_FORWARD, EFFICIENT_BACKWARD, "_cdist_backward", "_pdist_backward", "masked_scatter",
    "masked_scatter_", "masked_select",
})  # fmt: skip
"""kernels of a GPU that gather their results in memory of their own: ``elements`` times ``item`` bytes of it"""


@dataclass(frozen=True)
class Convolution:
    x: Shape
    w: Shape
    y: Shape
    stride: Shape
    dilation: Shape
    groups: int
    transposed: bool
    channels_last: bool
    dtype: str
    item: int
    """bytes of a number"""
    wants: tuple[bool, ...]
    """which gradients a backward convolution makes (of x, of w, of the bias); empty for a forward one"""
    copied: int = 0
    """bytes of a gradient that was expanded, and is written out before anything else"""

    @property
    def x_bytes(self) -> int:
        return math.prod(self.x) * self.item

    @property
    def w_bytes(self) -> int:
        return math.prod(self.w) * self.item

    @property
    def y_bytes(self) -> int:
        return math.prod(self.y) * self.item

    @property
    def area(self) -> int:
        return math.prod(self.w[2:])

    @property
    def depthwise(self) -> bool:
        return self.groups == self.x[1] > 1


@dataclass(frozen=True)
class Kernel:
    op: str
    elements: int
    item: int
    copied: int = 0
    """bytes of arguments that are laid out anew before anything else"""


Call = Convolution | Recurrent | Kernel


def read_call(text: str) -> Call:
    """A call from its spec, which may come from a file of somebody else's."""
    try:
        spec: dict[str, Any] = json.loads(text)
        if spec["op"] in (FORWARD, BACKWARD):
            return Recurrent(spec["op"], *(_size(spec[name]) for name in ("copies", "weights", "gates")))
        if not spec["op"].startswith("convolution"):
            sizes = (_size(spec[name]) if name in spec else 0 for name in ("item", "copied"))
            return Kernel(str(spec["op"]), _size(spec["elements"]), *sizes)
        shapes = {name: tuple(_size(side) for side in spec[name]) for name in ("x", "w", "y", "stride", "dilation")}
        if not len(shapes["x"]) == len(shapes["w"]) == len(shapes["y"]) >= 3 or not spec["groups"] >= 1:
            raise ValueError("shapes of a convolution")
        return Convolution(
            **shapes,
            groups=_size(spec["groups"]),
            transposed=bool(spec["transposed"]),
            channels_last=bool(spec["channels_last"]),
            dtype=str(spec["dtype"]),
            item=_size(spec["item"]),
            wants=tuple(bool(wanted) for wanted in spec.get("wants", ())),
            copied=_size(spec.get("copied", 0)),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DamagedFile(
            f"the timeline names an operation that cannot be priced ({text[:60]!r}): expected a convolution's shapes "
            "or a number of elements; make the file again with `oomproof check JOB --save FILE.timeline`"
        ) from error


def _size(value: Any) -> int:
    if not isinstance(value, int) or not 0 <= value < 1 << 40:
        raise ValueError(f"a size: {value!r}")
    return int(value)
