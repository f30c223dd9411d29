"""Several GPUs: each one's share of the images, and what exchanging gradients takes."""

from __future__ import annotations

import pytest

from oomproof.errors import CannotDo, InputError
from oomproof.memory.parallel import PACKS, Parallel, with_exchange
from oomproof.memory.runtime import Runtime
from oomproof.memory.timeline import Builder


def test_each_rank_has_its_share() -> None:
    assert Parallel(4).share(16, "batch_size") == 4
    with pytest.raises(CannotDo, match="batch_size 10 must be divisible by the number of GPUs, 4; take 8 or 12"):
        Parallel(4).share(10, "batch_size")
    with pytest.raises(CannotDo, match=r"take 4$"):
        Parallel(4).share(3, "batch_size")
    with pytest.raises(InputError, match="gpus must be at least 1; got 0"):
        Parallel(0).share(10, "batch_size")
    with pytest.raises(InputError, match="batch_size must be at least 1; got 0"):
        Parallel(2).share(0, "batch_size")


def test_a_runtime_says_how_pytorch_shares() -> None:
    assert Runtime(gradient_as_bucket_view=True).parallel == Parallel(), "an option of DDP, which is not used"
    assert Runtime(ddp=True).parallel.exchange == "buckets"
    assert Runtime(ddp=True, gradient_as_bucket_view=True).parallel.exchange == "bucket views"


def test_the_exchange_of_gradients_takes_one_more_set() -> None:
    step = Builder()
    step.allocate(100, kind="parameter", owner="net", op="variable")
    for _ in range(2):
        step.enter("forward")
        step.free(step.allocate(50, kind="temporary", owner="net", op="Mul"))
        step.enter("optimizer")
        step.free(step.allocate(10, kind="temporary", owner="net", op="Mul"))
    timeline = with_exchange(step.build(), Parallel(2, "packs"))
    assert timeline.peak().bytes == 210
    assert timeline.by_owner(timeline.peak().tick)[PACKS] == 100
    assert timeline.by_phase()["forward"] == 150, "the packs are gone when the next step begins"
