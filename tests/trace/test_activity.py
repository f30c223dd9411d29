"""What the traced step does: work against counts by hand, and the calls of modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from small_nets import Block, deep, mlp, pieces, traced
from torch import nn
from torch.nn.functional import dropout, scaled_dot_product_attention

from oomproof.changes.torch.training import OPTIMIZERS
from oomproof.memory.activity import CONVOLUTION, DEPTHWISE, HALF, HALF_CONVOLUTION, HALF_DEPTHWISE, PLAIN, ModuleCall
from oomproof.memory.timeline import KINDS, PHASES, Timeline
from oomproof.trace.torch.loop import Pieces


def step_of(net: Callable[[], nn.Module], *shape: int, **training: Any) -> Timeline:
    """A step of a net on one tensor, with the mean of what comes out as its loss."""
    batch = lambda: torch.rand(*shape)  # noqa: E731
    loss = lambda model, x: model(x).float().square().mean()  # noqa: E731
    return traced(Pieces(net, batch, loss, OPTIMIZERS["sgd"]), **training)


def flops(timeline: Timeline, phase: str) -> int:
    return int(timeline.work.flops[timeline.work.phase == PHASES.index(phase)].sum())


def both(timeline: Timeline) -> tuple[int, int]:
    return flops(timeline, "forward"), flops(timeline, "backward")


def calls(timeline: Timeline) -> dict[str, ModuleCall]:
    found = {call.path: call for call in timeline.modules}
    assert len(found) == len(timeline.modules), "a module was counted twice"
    return found


# -- work ------------------------------------------------------------------------------------------------------


def test_a_convolution_counts_every_filter_at_every_place() -> None:
    once = 2 * (2 * 10 * 10) * 12 * (8 * 9)
    assert both(step_of(lambda: nn.Conv2d(8, 12, 3, padding=1), 2, 8, 10, 10)) == (once, once)  # the input needs none


def test_groups_and_strides() -> None:
    once = 2 * (2 * 5 * 5) * 12 * (8 // 4 * 9)
    net = lambda: nn.Conv2d(8, 12, 3, stride=2, padding=1, groups=4)  # noqa: E731
    assert both(step_of(net, 2, 8, 10, 10)) == (once, once)


def test_transposed_convolutions_count_their_smaller_side() -> None:
    once = 2 * (2 * 5 * 5) * 8 * (12 // 2 * 4)
    net = lambda: nn.ConvTranspose2d(8, 12, 2, stride=2, groups=2)  # noqa: E731
    assert both(step_of(net, 2, 8, 5, 5)) == (once, once)


def test_backward_is_twice_where_the_input_needs_a_gradient_too() -> None:
    first, second = 2 * 4 * 36 * 6 * 3 * 9, 2 * 4 * 36 * 5 * 6
    net = lambda: nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.Conv2d(6, 5, 1))  # noqa: E731
    assert both(step_of(net, 4, 3, 6, 6)) == (first + second, first + 2 * second)


def test_linear_layers() -> None:
    first, second = 2 * 256 * 64 * 128, 2 * 256 * 128 * 32
    assert both(traced(pieces(mlp))) == (first + second, first + 2 * second)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x * self.scale
        return scaled_dot_product_attention(x, x[..., :20, :], x[..., :20, :])


@pytest.mark.parametrize("dialect", ["cpu", "cuda"])
def test_attention(dialect: str) -> None:
    product = 2 * (2 * 4 * 30 * 16) * 20  # images, heads, queries, width; keys
    forward, backward = both(step_of(Attention, 2, 4, 30, 16, dialect=dialect))
    assert forward == 2 * product
    assert backward in (4 * product, 5 * product)  # the scores may be formed again


class Product(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3, 7, 5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.bmm(x, self.weight)


def test_products_of_batches() -> None:
    once = 2 * 3 * 4 * 7 * 5
    assert both(step_of(Product, 3, 4, 7)) == (once, once)


def test_the_update_multiplies_no_matrices_but_reads_and_writes() -> None:
    timeline = traced(pieces(mlp))
    update = timeline.work.where(timeline.work.phase == PHASES.index("optimizer"))
    weights = int(timeline.bytes[timeline.kind == KINDS.index("parameter")].sum())
    assert not update.flops.any()
    assert update.bytes.sum() >= 4 * weights  # weights, gradients, momentum read; weights and momentum written


def test_bytes_are_those_read_and_written() -> None:
    work = traced(pieces(lambda: nn.Linear(64, 128, bias=False))).work
    [product] = np.flatnonzero((work.phase == PHASES.index("forward")) & (work.flops > 0))
    assert work.bytes[product] == 4 * (256 * 64 + 64 * 128 + 256 * 128)


def test_how_operations_compute() -> None:
    def forms(groups: int = 1, **training: Any) -> set[int]:
        net = lambda: nn.Sequential(nn.Conv2d(3, 6, 3, groups=groups), nn.Flatten(), nn.Linear(96, 4))  # noqa: E731
        work = step_of(net, 4, 3, 6, 6, **training).work
        return set(work.form[work.flops > 0].tolist())

    assert forms() == {PLAIN, CONVOLUTION}
    assert forms(precision="bf16") == forms(precision="fp16") == {HALF, HALF_CONVOLUTION}
    assert forms(groups=3) == {PLAIN, DEPTHWISE}
    assert forms(groups=3, precision="bf16") == {HALF, HALF_DEPTHWISE}


# -- calls of modules ------------------------------------------------------------------------------------------


def test_calls_say_what_goes_in_and_comes_out() -> None:
    timeline = traced(pieces(mlp))
    found = calls(timeline)
    assert list(found) == ["0", "1", "2", "Sequential"]
    sizes = {path: [timeline.bytes[list(rows)].tolist() for rows in (c.inputs, c.outputs)] for path, c in found.items()}
    assert sizes == {
        "0": [[4 * 256 * 64], [4 * 256 * 128]],
        "1": [[4 * 256 * 128], [4 * 256 * 128]],
        "2": [[4 * 256 * 128], [4 * 256 * 32]],
        "Sequential": [[4 * 256 * 64], [4 * 256 * 32]],
    }
    assert found["0"].outputs == found["1"].inputs
    assert {call.images for call in found.values()} == {256}


@pytest.mark.parametrize("zero_grad", ["before_forward", "before_backward", "keep"])
def test_rows_and_ticks_belong_to_the_second_step(zero_grad: str) -> None:
    timeline = traced(pieces(deep), zero_grad=zero_grad)
    second = timeline.mark_tick[1 + len(timeline.mark_tick) // 2]  # after setup, both steps have the same marks
    backward = timeline.mark_tick[timeline.mark_phase == PHASES.index("backward")][-1]
    found = calls(timeline)
    assert "1.3.up" in found
    for call in found.values():
        assert second <= call.enter <= call.leave <= backward
        for row in call.inputs:
            assert timeline.born[row] < call.enter < timeline.died[row]
        for row in call.outputs:
            assert timeline.born[row] < call.leave < timeline.died[row]
            assert timeline.born[row] >= call.enter
        inner = [other for path, other in found.items() if path.startswith(f"{call.path}.")]
        assert all(call.enter <= other.enter and other.leave <= call.leave for other in inner)
    for name in ("forward", "backward", "optimizer"):
        ticks = timeline.work.tick[timeline.work.phase == PHASES.index(name)]
        assert len(ticks)
        assert (ticks >= second).all()
        assert {name} <= {timeline.phase_at(max(int(tick) - 1, int(second))) for tick in ticks} <= {name, "forward"}


def test_what_is_computed_again_is_work_but_no_call() -> None:
    plain, again = traced(pieces(deep)), traced(pieces(deep), checkpoint="1.2,1.5")
    assert [call.path for call in plain.modules] == [call.path for call in again.modules]
    once = 2 * (2 * 256 * 32 * 128)
    assert flops(again, "forward") == flops(plain, "forward")
    # early stop: the last product is not formed a second time, since nothing of it is saved
    assert flops(again, "backward") - flops(plain, "backward") in (once, 2 * once)


class InPlace(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.given, self.made = nn.Linear(64, 64), nn.Sequential(nn.Linear(64, 64), nn.ReLU(inplace=True))
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.made(self.relu(self.given(x)))


def test_a_module_that_writes_into_what_it_was_given_is_not_repeatable() -> None:
    found = calls(step_of(InPlace, 256, 64))
    assert {path: call.repeatable for path, call in found.items()} == {
        "given": True,
        "relu": False,
        "made.0": True,
        "made.1": False,
        "made": True,  # what it writes into is its own
        "InPlace": True,
    }


class Curious(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.asks, self.rest = nn.Linear(64, 64), nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.rest(self.sometimes(x))

    def sometimes(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.asks(x)
        return y[y.sum(1) > 0] if bool((x > 2).any()) else y


def test_a_module_that_asks_for_values_is_not_repeatable() -> None:
    found = calls(step_of(Curious, 256, 64))
    assert {path: call.repeatable for path, call in found.items()} == {"asks": True, "rest": True, "Curious": False}


class Counter(nn.Module):
    """Counts its calls, as moving averages and spectral normalisation do with more effort."""

    seen: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(64, 64)
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen += 1
        y: torch.Tensor = self.inner(x)
        return y


def test_a_module_that_writes_to_a_buffer_of_its_own_is_not_repeatable() -> None:
    found = calls(step_of(lambda: nn.Sequential(Counter(), nn.BatchNorm1d(64)), 256, 64))
    # checkpointing refuses such modules; statistics of batch normalisation it knows how to keep
    assert {path: call.repeatable for path, call in found.items()} == {
        "0": False,
        "0.inner": True,
        "1": True,
        "Sequential": False,
    }


def test_a_module_that_is_no_part_of_the_model_is_not_repeatable() -> None:
    loss = nn.MSELoss()
    job = pieces(mlp, loss=lambda model, x: loss(model(x), torch.zeros(256, 32)))
    found = calls(traced(job))
    assert not found["MSELoss"].repeatable  # no setting could name it
    assert found["Sequential"].repeatable


@pytest.mark.parametrize(
    ("layer", "separable"),
    [
        (lambda: nn.BatchNorm1d(64), False),
        (lambda: nn.BatchNorm1d(64, track_running_stats=False), False),
        (lambda: nn.Dropout(0.5), False),
        (lambda: nn.LayerNorm(64), True),
        (nn.GELU, True),
    ],
)
def test_which_layers_mix_images(layer: Callable[[], nn.Module], separable: bool) -> None:
    found = calls(step_of(lambda: nn.Sequential(nn.Linear(64, 64), layer(), nn.Linear(64, 8)), 256, 64))
    assert {path: call.separable for path, call in found.items()} == {
        "0": True,
        "1": separable,
        "2": True,
        "Sequential": separable,
    }


class Held(nn.Module):
    """A body that is held in evaluation mode, as frozen batch normalisation is."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.end = nn.BatchNorm1d(64), nn.Linear(64, 8)

    def train(self, mode: bool = True) -> Held:
        super().train(mode)
        self.norm.eval()
        return self

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.end(dropout(self.norm(x), 0.5, training=False))
        return y


def test_normalisation_that_does_not_train_mixes_nothing() -> None:
    timeline = step_of(Held, 256, 64)
    assert all(call.separable for call in timeline.modules)
    assert timeline.about.separable is True and timeline.about.batchnorms == 0


def test_images_are_what_all_tensors_have_in_common() -> None:
    class Flat(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block, self.end = Block(32), nn.Linear(32, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y: torch.Tensor = self.end(self.block(x).flatten(0, 1))
            return y

    found = calls(step_of(Flat, 6, 10, 32))
    assert (found["block"].images, found["end"].images, found["Flat"].images) == (6, 60, 0)


@pytest.mark.parametrize(
    ("last", "saves"),
    [
        (nn.ReLU, True),
        (nn.Sigmoid, True),
        (nn.GELU, False),
        (nn.Identity, False),
        (lambda: nn.Unflatten(1, (8, 8)), False),
    ],
)
def test_which_modules_save_what_they_return(last: Callable[[], nn.Module], saves: bool) -> None:
    """Computed again, the others stop before their last operation."""
    found = calls(step_of(lambda: nn.Sequential(nn.Sequential(nn.Linear(64, 64), last()), nn.Flatten()), 256, 64))
    assert found["0"].saves_output is saves


def test_a_look_at_what_was_saved_is_saved_too() -> None:
    net = lambda: nn.Sequential(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Unflatten(1, (8, 8))), nn.Flatten())  # noqa: E731
    assert calls(step_of(net, 256, 64))["0"].saves_output


# -- what modules are given ------------------------------------------------------------------------------------


class Sums(nn.Module):
    """Takes layers' results one by one, each once."""

    def forward(self, results: Any) -> torch.Tensor:
        return sum(results, torch.zeros(()))


class Takes(nn.Module):
    def __init__(self, wrap: Callable[[list[torch.Tensor]], Any]) -> None:
        super().__init__()
        self.layers, self.sums, self.wrap = nn.ModuleList(nn.Linear(64, 64) for _ in range(3)), Sums(), wrap

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.sums(self.wrap([layer(x) for layer in self.layers]))


def test_what_can_be_iterated_once_is_left_to_the_module() -> None:
    takes = lambda: Takes(lambda results: (result for result in results))  # noqa: E731
    plain, lazy = step_of(lambda: Takes(list), 8, 64), step_of(takes, 8, 64)
    assert both(lazy) == both(plain)


class Images:
    def __init__(self, tensors: list[torch.Tensor]) -> None:
        self.tensors, self.itself = tensors, self

    def __iter__(self) -> Any:
        return iter(self.tensors)


def test_tensors_inside_an_object_are_inputs_too() -> None:
    assert len(calls(step_of(lambda: Takes(Images), 8, 64))["sums"].inputs) == 3
