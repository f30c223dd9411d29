"""What a GPU does otherwise: the autocast policy as PyTorch declares it, dropout, attention, list-at-once updates."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from small_nets import most, pieces, traced
from torch import nn, optim
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from oomproof.frameworks.torch import kernels_of_key
from oomproof.memory.timeline import Timeline
from oomproof.trace.torch.gpu import autocast_policy as policy
from oomproof.trace.torch.gpu.dialect import Dialect, dialect_in_force
from oomproof.trace.torch.tracer import Tracer

HEADER = Path(torch.__file__).parent / "include" / "ATen" / "autocast_mode.h"
HALF_ON_BOTH = {
    "conv1d", "conv2d", "conv3d", "conv_tbc", "conv_transpose1d", "conv_transpose2d.input", "conv_transpose3d.input",
    "prelu", "addmm", "matmul", "mm", "linalg_vecdot", "linear", "addbmm", "baddbmm", "bmm",
    "_scaled_dot_product_flash_attention", "scaled_dot_product_attention", "_convolution.deprecated",
}  # fmt: skip
"""what the CPU's own policy casts, or (deprecated) what no Python code reaches"""


NEWER = {"rms_norm"}
"""what PyTorch 2.4 and 2.8 do not cast on a GPU, and 2.14 does"""


def declared(macro: str) -> set[str]:
    """``_(pow, Scalar)`` in the header's table is ``pow.Scalar``."""
    table = re.search(rf"#define {macro}\(_\)(.*?)(?:\n\n|\Z)", HEADER.read_text(), re.DOTALL)
    assert table, f"{macro} is not in {HEADER}"
    names = {name.replace(", ", ".") for name in re.findall(r"_\(([\w, ]+)\)", table[1])}
    return {name for name in names if "imname" not in name}  # of named tensors, which are gone in 2.14


def alike_on_the_cpu(names: set[str]) -> set[str]:
    """Those that CPU autocast treats the same: the losses, and a few more."""
    on_cpu = set(kernels_of_key("AutocastCPU"))
    return {name for name in names if f"aten::{name}" in on_cpu}


@pytest.mark.parametrize(
    ("macro", "table"),
    [
        ("AT_FORALL_FP32", policy.FP32),
        ("AT_FORALL_FP32_SET_OPT_DTYPE", policy.FP32_RESULT),
        ("AT_FORALL_PROMOTE", policy.WIDEST),
    ],
)
def test_tables_are_those_of_the_header(macro: str, table: tuple[str, ...]) -> None:
    names, here = declared(macro), set(policy.in_force(table, kernels_of_key("AutocastCUDA")))
    assert here <= names
    assert names - here == alike_on_the_cpu(names - here)
    assert set(table) - here <= NEWER


def test_half_is_as_the_header_has_it() -> None:
    assert set(policy.HALF) | HALF_ON_BOTH == declared("AT_FORALL_LOWER_PRECISION_FP")
    assert set(policy.HALF).isdisjoint(HALF_ON_BOTH)


@pytest.fixture
def on_gpu() -> Iterator[Tracer]:
    with dialect_in_force("cuda"), Tracer() as tracer:
        yield tracer


CASTS: dict[str, tuple[Callable[[torch.Tensor], Any], str]] = {
    "softmax": (lambda h: h.softmax(-1), "float32"),
    "log_softmax": (lambda h: h.log_softmax(-1), "float32"),
    "softmax with a type": (lambda h: h.softmax(-1, dtype=torch.float16), "float16"),
    "sum": (lambda h: h.sum(), "float32"),
    "sum over a dimension": (lambda h: h.sum(-1), "float32"),
    "cumsum": (lambda h: h.cumsum(0), "float32"),
    "prod": (lambda h: h.prod(), "float32"),
    "mean": (lambda h: h.mean(), "float16"),
    "exp": (lambda h: h.exp(), "float32"),
    "pow": (lambda h: h**2, "float32"),
    "norm": (lambda h: h.norm(), "float32"),
    "norm over a dimension": (lambda h: h.norm(dim=-1), "float32"),
    "layer_norm": (lambda h: F.layer_norm(h, (8,)), "float32"),
    "group_norm": (lambda h: F.group_norm(h, 2), "float32"),
    "upsample": (lambda h: F.interpolate(h[None, None], scale_factor=2.0), "float32"),
    "mse_loss": (lambda h: F.mse_loss(h, torch.zeros(8, 8)), "float32"),
    "relu": (lambda h: h.relu(), "float16"),
    "gelu": (F.gelu, "float16"),
    "sigmoid": (lambda h: h.sigmoid(), "float16"),
    "batch_norm": (lambda h: F.batch_norm(h, None, None, training=True), "float16"),
    "max_pool": (lambda h: F.max_pool2d(h[None], 2), "float16"),
    "avg_pool": (lambda h: F.avg_pool2d(h[None], 2), "float16"),
    "pad": (lambda h: F.pad(h[None], (1, 1, 1, 1), mode="reflect"), "float16"),
    "cross_entropy": (lambda h: F.cross_entropy(h, torch.zeros(8, dtype=torch.int64)), "float32"),
    "einsum": (lambda h: torch.einsum("ij,jk->ik", torch.rand(8, 8), torch.rand(8, 8)), "float16"),
    "conv2d": (lambda h: F.conv2d(torch.rand(1, 8, 9, 9), torch.rand(4, 8, 3, 3)), "float16"),
    "linear": (lambda h: F.linear(torch.rand(2, 8), torch.rand(4, 8)), "float16"),
    "addcmul": (lambda h: torch.addcmul(h, h, torch.rand(8, 8)), "float32"),
    "index_put": (lambda h: torch.zeros(8, 8).index_put((torch.arange(8),), h), "float32"),
}


@pytest.mark.parametrize("name", CASTS)
def test_casts(on_gpu: Tracer, name: str) -> None:
    operation, dtype = CASTS[name]
    x = torch.rand(8, 8)
    with torch.autocast("cuda", dtype=torch.float16):
        assert str(operation(x @ x).dtype) == f"torch.{dtype}"
    assert operation(x).dtype in (torch.float32, torch.float16 if "with a type" in name else torch.float32)


@pytest.mark.parametrize(("dialect", "mask"), [("cuda", 1), ("cpu", 4)])
def test_what_dropout_keeps(dialect: Dialect, mask: int) -> None:
    elements = 256 * 64
    job = pieces(
        lambda: nn.Sequential(nn.Dropout(0.3), nn.Linear(64, 1)), loss=lambda net, x: net(x.requires_grad_()).sum()
    )
    kept = traced(job, dialect, update="plain")
    output, prediction = elements * 4, 256 * 4
    assert most(kept, "activation") == pytest.approx(output + elements * mask + prediction, abs=2048)


def attended(heads: tuple[int, ...], dtype: torch.dtype = torch.float32, mask: str = "", **how: Any) -> Timeline:
    """One attention, forward and backward, of 512 queries by 512 keys."""
    with dialect_in_force("cuda"), Tracer() as tracer:
        q, k, v = (torch.rand(heads, dtype=dtype, requires_grad=True) for _ in range(3))
        if mask:
            bias = torch.ones(512, 512, dtype=torch.bool) if mask == "bool" else torch.zeros(512, 512, dtype=dtype)
            how["attn_mask"] = bias
        tracer.ledger.start_step()
        out = F.scaled_dot_product_attention(q, k, v, **how)
        assert out.shape == heads and out.dtype is dtype
        out.sum().backward()
        assert q.grad.shape == k.grad.shape == v.grad.shape == heads
        return tracer.ledger.build()


def squares(timeline: Timeline, heads: int, item: int) -> int:
    """Blocks that hold a number for each pair of query and key."""
    return int((timeline.bytes >= heads * 512 * 512 * item).sum())


FUSED = {
    "fp32": {},
    "half": {"dtype": torch.float16},
    "bf16": {"dtype": torch.bfloat16},
    "causal": {"dtype": torch.float16, "is_causal": True},
    "dropout": {"dtype": torch.float16, "dropout_p": 0.1},
    "mask": {"mask": "float"},
    "bool mask": {"mask": "bool"},
    "half with a mask": {"dtype": torch.float16, "mask": "bool"},
    "own scale": {"scale": 0.5},
}


@pytest.mark.parametrize("how", FUSED)
def test_attention_holds_no_square(how: str) -> None:
    assert squares(attended((2, 4, 512, 32), **FUSED[how]), 2 * 4, 2) == 0


def test_attention_with_an_odd_head_in_half_is_padded() -> None:
    timeline = attended((2, 4, 512, 30), torch.float16)
    assert squares(timeline, 2 * 4, 2) == 0
    assert 2 * 4 * 512 * 32 * 2 in timeline.bytes.tolist()


@pytest.mark.parametrize("heads", [(2, 4, 512, 30), (4, 512, 32)], ids=["odd head in fp32", "three dimensions"])
def test_attention_that_no_fused_kernel_takes(heads: tuple[int, ...]) -> None:
    assert squares(attended(heads), heads[0], 4) > 0


def test_attention_whose_values_alone_are_aligned() -> None:
    with dialect_in_force("cuda"), Tracer() as tracer:
        q, k, v = (torch.rand(2, 4, 512, head, requires_grad=True) for head in (30, 30, 32))
        F.scaled_dot_product_attention(q, k, v).sum().backward()
        assert squares(tracer.ledger.build(), 2 * 4, 4) > 0


@pytest.mark.parametrize(
    ("backends", "dtype", "kernel"),
    [
        ([SDPBackend.MATH], torch.float16, "_safe_softmax"),
        ([SDPBackend.EFFICIENT_ATTENTION], torch.float16, "_scaled_dot_product_efficient_attention"),
        ([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH], torch.float32, "_safe_softmax"),
        ([SDPBackend.FLASH_ATTENTION], torch.float16, "_scaled_dot_product_flash_attention"),
        ([SDPBackend.CUDNN_ATTENTION], torch.float16, "_scaled_dot_product_flash_attention"),  # takes about as much
    ],
)
def test_attention_is_one_that_the_job_allows(backends: list[SDPBackend], dtype: torch.dtype, kernel: str) -> None:
    with sdpa_kernel(backends):
        step = attended((2, 4, 512, 32), dtype)
    assert kernel in step.ops
    assert (squares(step, 2 * 4, 2) > 0) == (kernel == "_safe_softmax")


def test_cpu_attention_stays_the_cpus() -> None:
    with dialect_in_force("cpu"), Tracer() as tracer:
        q = torch.rand(2, 4, 512, 32, requires_grad=True)
        F.scaled_dot_product_attention(q, q, q).sum().backward()
        assert "_scaled_dot_product_flash_attention_for_cpu" in tracer.ledger.build().ops


class Normalised(nn.Module):
    """Batch normalisation of rows that are grouped as images, channels last."""

    def __init__(self, sides: tuple[int, ...] = (16,), *, dense: bool = False, affine: bool = True) -> None:
        super().__init__()
        kind = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d}[len(sides)]
        self.up, self.norm, self.down = nn.Linear(64, 64), kind(64, affine=affine), nn.Linear(64, 64)
        self.sides, self.dense = sides, dense

    def forward(self, x: torch.Tensor) -> Any:
        y = self.up(x).relu().view(-1, *self.sides, 64).movedim(-1, 1)
        return self.down(self.norm(y.contiguous() if self.dense else y).movedim(1, -1))


@pytest.mark.parametrize(
    ("how", "precision", "dialect", "copied"),
    [
        ({}, "fp32", "cuda", True),
        ({}, "fp16", "cuda", True),
        ({}, "bf16", "cuda", False),
        ({"affine": False}, "fp32", "cuda", False),
        ({"sides": (4, 4)}, "fp32", "cuda", False),  # channels last is dense
        ({}, "fp32", "cpu", False),
    ],
)
def test_batch_norm_keeps_a_copy_of_what_is_not_dense(how: Any, precision: str, dialect: Dialect, copied: bool) -> None:
    def peak(**more: Any) -> int:
        return traced(pieces(lambda: Normalised(**how, **more), rows=4096), dialect, precision=precision).peak().bytes

    assert (peak() == peak(dense=True)) is copied
    assert peak() <= peak(dense=True)


@pytest.mark.parametrize(("dialect", "at_once"), [("cuda", True), ("cpu", False)])
def test_updates_are_list_at_once_on_a_gpu(dialect: Dialect, at_once: bool) -> None:
    ops = traced(pieces(optimizer=optim.Adam, rows=2), dialect).ops
    assert any(op.startswith("_foreach_") for op in ops) == at_once
