"""A step's Timeline: kinds by hand arithmetic, owners, and priming against the same loop run twice."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from small_nets import WEIGHTS, at_the_end, deep, mlp, most, pieces, square, traced
from torch import nn, optim

from oomproof.memory.timeline import KINDS, PHASES

STEPS = 4 * 4
"""one float that counts steps, for each of mlp()'s four parameters"""
FACTORS = 4 * (128 + 64 + 128 + 32 + 128 + 32)
"""Adafactor: a row and a column for each weight, the whole for each bias"""

OPTIMIZERS: dict[str, tuple[Callable[[Any], Any], int]] = {
    "SGD": (lambda p: optim.SGD(p, lr=0.1), 0),
    "momentum": (lambda p: optim.SGD(p, lr=0.1, momentum=0.9), WEIGHTS),
    "Adam": (optim.Adam, 2 * WEIGHTS + STEPS),
    "amsgrad": (lambda p: optim.Adam(p, amsgrad=True), 3 * WEIGHTS + STEPS),
    "AdamW": (optim.AdamW, 2 * WEIGHTS + STEPS),
    "RMSprop": (optim.RMSprop, WEIGHTS + STEPS),
    "Adafactor": (optim.Adafactor, FACTORS + STEPS),
}
WITHOUT_FUSED = ("RMSprop", "Adafactor")


@pytest.mark.parametrize("update", ["auto", "foreach", "fused", "plain"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_kinds_by_hand(name: str, update: str) -> None:
    if update == "fused" and name in WITHOUT_FUSED:
        pytest.skip("PyTorch has no such form")
    make, state = OPTIMIZERS[name]
    timeline = traced(pieces(optimizer=make), update=update)
    expected = {"parameter": WEIGHTS, "gradient": WEIGHTS, "optimizer": state, "input": 256 * 64 * 4}
    assert at_the_end(timeline) == {kind: size for kind, size in expected.items() if size}


def test_forms_of_update_take_what_they_take() -> None:
    def in_update(update: str) -> int:
        phases = traced(pieces(rows=1, optimizer=optim.Adam), update=update).by_phase()
        return phases.get("optimizer", 0)

    held = 4 * WEIGHTS + STEPS + 64 * 4
    largest = 4 * 64 * 128
    assert in_update("foreach") == held + WEIGHTS  # a list of denominators
    assert held + largest <= in_update("plain") <= held + 3 * largest  # one parameter after another
    assert in_update("fused") <= held


def test_activations_by_hand() -> None:
    timeline = traced(update="plain")
    hidden, output = 256 * 128 * 4, 256 * 32 * 4
    # The first linear's output dies into ReLU, whose own is kept; the last one is kept by square().
    scalars = 4 + 4  # the loss and the gradient that backward starts from
    assert most(timeline, "activation") == hidden + output + scalars
    rows = timeline.kind == KINDS.index("temporary")
    assert hidden in timeline.bytes[rows].tolist()


def test_every_block_has_its_owner() -> None:
    timeline = traced(pieces(lambda: deep(2)), ema=True, optimizer="adam")
    paths = {path for path, _ in deep(2).named_modules() if path}
    assert set(timeline.owners) <= paths | {"(step)", "(ema)"}
    for phase in ("forward", "backward"):
        seen = {timeline.owners[o] for o in timeline.owner[timeline.phase == PHASES.index(phase)]}
        assert {"0", "1.0", "1.0.norm", "1.0.up", "1.0.down", "1.1.down"} <= seen, phase


@pytest.mark.parametrize("kind", ["parameter", "gradient", "optimizer"])
def test_weights_and_what_belongs_to_them_are_their_modules(kind: str) -> None:
    timeline = traced(optimizer="sgd")
    rows = (timeline.kind == KINDS.index(kind)) & (timeline.died == timeline.ticks)
    owned = {"0": 0, "2": 0}
    for owner, size in zip(timeline.owner[rows], timeline.bytes[rows], strict=True):
        owned[timeline.owners[owner]] += int(size)
    assert owned == {"0": 4 * (64 * 128 + 128), "2": 4 * (128 * 32 + 32)}


def test_buffers_and_a_lone_module() -> None:
    timeline = traced(pieces(lambda: nn.BatchNorm1d(64)))
    assert at_the_end(timeline)["buffer"] == 4 * (64 + 64) + 8
    assert set(timeline.owners) == {"BatchNorm1d", "(step)"}


def written_out(zero_grad: str, accumulate: int) -> Callable[[Any, Any, Any], None]:
    """The loop as a whole step: it really runs twice."""

    def step(model: nn.Module, x: torch.Tensor, optimizer: optim.Optimizer) -> None:
        if zero_grad != "before_backward":
            optimizer.zero_grad(set_to_none=zero_grad != "keep")
        for micro_batch in range(accumulate):
            loss = square(model, x) / accumulate if accumulate > 1 else square(model, x)
            if zero_grad == "before_backward" and micro_batch == 0:
                optimizer.zero_grad()
            loss.backward()
            del loss
        optimizer.step()

    return step


@pytest.mark.parametrize("accumulate", [1, 2, 8])
@pytest.mark.parametrize("zero_grad", ["before_forward", "before_backward", "keep"])
@pytest.mark.parametrize("optimizer", [optim.Adam, lambda p: optim.SGD(p, momentum=0.9)], ids=["adam", "momentum"])
def test_priming_is_as_the_loop_run_twice(optimizer: Callable[[Any], Any], zero_grad: str, accumulate: int) -> None:
    primed = traced(pieces(optimizer=optimizer), zero_grad=zero_grad, accumulate=accumulate)
    run = traced(pieces(optimizer=optimizer, step=written_out(zero_grad, accumulate)))
    assert primed.peak().bytes == run.peak().bytes
    assert primed.by_kind(primed.peak().tick) == run.by_kind(run.peak().tick)
    assert primed.by_owner(primed.peak().tick) == run.by_owner(run.peak().tick)
    assert primed.by_phase() == run.by_phase()
    assert at_the_end(primed) == at_the_end(run)


def test_more_micro_batches_change_nothing_from_two_on() -> None:
    one, two, eight = (traced(accumulate=count) for count in (1, 2, 8))
    assert one.peak().bytes < two.peak().bytes == eight.peak().bytes
    assert len(two) == len(eight)


def test_when_gradients_are_dropped() -> None:
    forward = {mode: traced(zero_grad=mode).by_phase()["forward"] for mode in ("before_forward", "before_backward")}
    assert forward["before_backward"] == forward["before_forward"] + WEIGHTS
    peaks = [traced(zero_grad=mode).peak().bytes for mode in ("before_forward", "before_backward", "keep")]
    assert peaks == sorted(peaks) and peaks[0] < peaks[2]


class PartlyUsed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = mlp(), nn.Linear(500, 500)
        self.frozen = nn.Linear(32, 32).requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.frozen(self.used(x))


@pytest.mark.parametrize("zero_grad", ["before_forward", "before_backward", "keep"])
def test_what_takes_no_part_has_neither_gradient_nor_state(zero_grad: str) -> None:
    timeline = traced(pieces(PartlyUsed), zero_grad=zero_grad)
    end = at_the_end(timeline)
    assert end["gradient"] == end["optimizer"] == WEIGHTS
    assert end["parameter"] == WEIGHTS + 4 * (500 * 501 + 32 * 33)
    assert most(timeline, "gradient") <= 2 * WEIGHTS


def test_ema_is_one_more_copy_of_the_weights() -> None:
    plain, averaged = traced(), traced(ema=True)
    assert at_the_end(averaged)["parameter"] == 2 * WEIGHTS
    assert at_the_end(averaged)["buffer"] == 8  # how often it was averaged
    assert averaged.peak().bytes == plain.peak().bytes + WEIGHTS + 8
    assert averaged.by_owner(averaged.ticks - 1)["(ema)"] == WEIGHTS + 8


def test_checkpointing_cuts_activations() -> None:
    kept, cut, reentrant = (
        traced(pieces(lambda: deep(16)), checkpoint=how) for how in ("none", "nonreentrant", "reentrant")
    )
    assert most(cut, "activation") < 0.35 * most(kept, "activation")
    assert most(reentrant, "activation") == pytest.approx(most(cut, "activation"), rel=0.05)
    assert reentrant.peak().bytes == pytest.approx(cut.peak().bytes, rel=0.05)


@pytest.mark.parametrize("how", ["nonreentrant", "reentrant"])
def test_what_is_computed_again_is_activations(how: str) -> None:
    timeline = traced(pieces(lambda: deep(4)), checkpoint=how)
    again = (timeline.phase == PHASES.index("backward")) & (timeline.kind == KINDS.index("activation"))
    wide = timeline.bytes == 256 * 4 * 32 * 4
    linear, gelu = (again & wide & (timeline.op == timeline.ops.index(op)) for op in ("addmm", "gelu"))
    assert gelu.sum() == linear.sum() == 2 * 4  # two steps of four blocks
    assert {timeline.owners[owner] for owner in timeline.owner[linear]} == {f"1.{block}.up" for block in range(4)}
    assert {timeline.owners[owner].rpartition(".")[0] for owner in timeline.owner[gelu]} <= {
        "1",
        "1.0",
        "1.1",
        "1.2",
        "1.3",
    }


def test_every_trace_draws_the_same_and_leaves_chance_as_it_was() -> None:
    def loss(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        rows = int(torch.randint(1, 200, ())) + random.randrange(20) + int(np.random.randint(20))
        return square(model, x[:rows])

    first = traced(pieces(loss=loss))
    draws = [torch.rand(3).tolist(), random.random(), float(np.random.random())]
    states = torch.get_rng_state(), random.getstate(), float(np.random.get_state()[1][0])
    again = traced(pieces(loss=loss))
    assert again.bytes.tolist() == first.bytes.tolist(), draws
    assert torch.equal(torch.get_rng_state(), states[0])
    assert (random.getstate(), float(np.random.get_state()[1][0])) == states[1:]


def test_an_optimizer_can_count_its_steps_while_its_state_is_made() -> None:
    counts: list[float] = []

    class Counting(optim.SGD):
        def step(self, closure: Any = None) -> None:
            (parameter, *_) = self.param_groups[0]["params"]
            count = self.state[parameter].setdefault("count", torch.zeros(()))
            count += 1
            counts.append(count.item())
            super().step(closure)

    traced(pieces(optimizer=lambda parameters: Counting(parameters, lr=0.1, momentum=0.9)))
    assert counts[0] == 1
