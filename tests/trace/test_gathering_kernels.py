"""Kernels of a GPU that gather their results in memory of their own, which no tensor shows: attention in backward,
tables and indexing, distances. Sizes are PyTorch's own arithmetic (2.14), by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from oomproof.api.check import forecast_step
from oomproof.changes.torch.training import Training
from oomproof.memory.cards.devices import find_device
from oomproof.memory.scratch import cuda
from oomproof.memory.scratch.calls import Kernel, read_call
from oomproof.memory.settings import Settings
from oomproof.memory.timeline import Timeline
from oomproof.trace.torch.loop import Pieces
from oomproof.trace.torch.trace_step import trace_step

GPU = find_device("RTX 3090")
FLASH, EFFICIENT = (f"_scaled_dot_product_{kind}_attention_backward" for kind in ("flash", "efficient"))


def traced(loss: Callable[[torch.Tensor], Any], shape: tuple[int, ...]) -> Timeline:
    """A step whose loss is made of one parameter."""

    class Table(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.rand(shape))

    return trace_step(Pieces(Table, lambda: torch.zeros(1), lambda model, _: loss(model.weight)), Training())


def prices(step: Timeline, op: str) -> list[int]:
    """The same for expected and high: it is known."""
    calls = [read_call(text) for text in step.calls.specs]
    found = [cuda.price(GPU)(call) for call in calls if isinstance(call, Kernel) and call.op == op]
    assert all(low == 0 and expected == high for expected, low, high in found)
    return [expected for expected, _, _ in found]


def attend(dtype: torch.dtype) -> Callable[[torch.Tensor], Any]:
    def loss(x: torch.Tensor) -> Any:
        heads = [each.transpose(1, 2) for each in x.to(dtype).unbind(2)]
        return F.scaled_dot_product_attention(*heads).transpose(1, 2).reshape(x.shape[0], -1).pow(2).mean()

    return loss


@pytest.mark.parametrize(("head", "laid_out"), [(64, 64), (40, 64), (128, 128), (192, 192), (200, 256)])
def test_flash_attention_sums_up_in_whole_tiles_of_fp32(head: int, laid_out: int) -> None:
    images, rows, heads = 2, 577, 3
    step = traced(attend(torch.bfloat16), (images, rows, 3, heads, head))
    assert prices(step, FLASH) == [images * heads * 640 * (laid_out + 1) * 4], "577 rows are five tiles of 128"


def test_efficient_attention_does_too() -> None:
    images, rows, heads = 2, 197, 3
    step = traced(attend(torch.float32), (images, rows, 3, heads, 64))
    assert prices(step, EFFICIENT) == [images * heads * (256 * 64 + 2 * 197) * 4]


@pytest.mark.parametrize(("head", "dtype", "sums"), [
    (192, torch.float16, True),
    (128, torch.float16, False),  # stays in registers
    (192, torch.float32, False),  # is what it is summed up in
])  # fmt: skip
def test_wide_heads_in_half_precision_are_summed_up_in_fp32(head: int, dtype: torch.dtype, sums: bool) -> None:
    images, rows, heads = 2, 64, 3

    def loss(x: torch.Tensor) -> Any:
        parts = [each.transpose(1, 2) for each in x.to(dtype).unbind(2)]
        return F.scaled_dot_product_attention(*parts, attn_mask=torch.zeros(rows, rows, dtype=dtype)).pow(2).mean()

    step = traced(loss, (images, rows, 3, heads, head))
    assert prices(step, "_scaled_dot_product_efficient_attention") == [images * heads * rows * head * 4] * sums


def test_gradients_whose_heads_do_not_lie_side_by_side_are_copied() -> None:
    def loss(x: torch.Tensor) -> Any:
        return F.scaled_dot_product_attention(x, x, x).pow(2).mean()

    q = 2 * 3 * 128 * 64
    assert prices(traced(loss, (2, 3, 128, 64)), EFFICIENT) == [(q + 2 * 3 * 2 * 128) * 4 + q * 4]


@pytest.mark.parametrize(("tokens", "each"), [(4096, 48 + 64 * 4), (3072, None)])
def test_each_index_of_a_table_has_a_row_in_its_gradient(tokens: int, each: int | None) -> None:
    step = traced(lambda w: F.embedding(torch.zeros(tokens, dtype=torch.int64), w).pow(2).mean(), (1000, 64))
    assert prices(step, "embedding_dense_backward") == ([] if each is None else [tokens * each])


def test_each_index_of_a_bag_too() -> None:
    step = traced(lambda w: F.embedding_bag(torch.zeros(20, 100, dtype=torch.int64), w).pow(2).mean(), (1000, 64))
    assert prices(step, "embedding_dense_backward") == [20 * 100 * (48 + 64 * 4)]


def test_a_long_bag_is_what_decides() -> None:
    """2000 bags of 500: their rows take 500 times what is made of them."""
    step = traced(lambda w: F.embedding_bag(torch.zeros(2000, 500, dtype=torch.int64), w).pow(2).mean(), (1000, 256))
    assert forecast_step(step, GPU, Settings({})).allocated.expected > 2000 * 500 * 256 * 4


ROW, COLUMN = torch.arange(30), torch.arange(50)
INDEXED: dict[str, tuple[Callable[[torch.Tensor], Any], int]] = {
    "rows": (lambda w: w[ROW].pow(2), 30 * 48),
    "pairs": (lambda w: w[ROW[:, None], COLUMN].pow(2), 30 * 50 * 48),
    "columns": (lambda w: w[:, COLUMN].pow(2), 50 * 48),
    "one gradient for all": (lambda w: w[ROW], 30 * 48 + 30 * 100 * 4 * 8),
    "apart": (lambda w: w[ROW, :, ROW % 8].pow(2), 30 * 48 + 100 * 100 * 8 * 4),
    "a mask": (lambda w: w[torch.arange(100) % 2 == 0].pow(2), 50 * 56),
}


@pytest.mark.parametrize("name", INDEXED)
def test_places_are_sorted_for_the_gradient_of_indexing(name: str) -> None:
    loss, wanted = INDEXED[name]
    step = traced(lambda w: loss(w).sum(), (100, 100, 8))
    assert prices(step, "index_put_") == [wanted]


@pytest.mark.parametrize("p", [1.0, 3.0])
def test_distances_keep_every_difference_in_backward(p: float) -> None:
    step = traced(lambda w: torch.cdist(w, w + 1, p=p).pow(2).mean(), (4, 50, 16))
    assert prices(step, "_cdist_backward") == [4 * 50 * 50 * 16 * 4]
    among = traced(lambda w: F.pdist(w, p).pow(2).mean(), (50, 16))
    assert prices(among, "_pdist_backward") == [49 * 50 * 16 * 4]


def test_masks_count_places() -> None:
    mask = torch.arange(40)[:, None] % 2 == 0
    step = traced(lambda w: w.masked_scatter(mask, w * 2).pow(2).mean() + w.masked_select(mask).mean(), (40, 50))
    assert prices(step, "masked_scatter_") + prices(step, "masked_scatter") == [40 * 50 * 8 + 40 * 50]
    assert prices(step, "masked_select") == [20 * 50 * 2 * 8]
