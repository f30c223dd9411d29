# ruff: noqa: PLW0108 (a question is asked inside the tracer, so it must be a lambda)
"""The tracer: values only where code asks for them, lifetimes as in the real program, nothing left behind."""

from __future__ import annotations

import copy
import gc
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torchvision
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor

from oomproof.memory.timeline import Timeline
from oomproof.trace.torch.gpu.dialect import dialect_in_force
from oomproof.trace.torch.tracer import NETWORK_NUMBER, Tracer


@pytest.fixture
def tracer() -> Iterator[Tracer]:
    with Tracer() as tracer:
        yield tracer


def boxes_and_scores() -> tuple[torch.Tensor, torch.Tensor]:
    corner = torch.arange(40.0).reshape(20, 2) % 17
    return torch.cat([corner, corner + 9], dim=1), torch.linspace(0.1, 0.9, 20)


def writes() -> Any:
    x = torch.arange(12.0).reshape(3, 4)
    view = x[1:, ::2]
    view.mul_(10)
    x.t()[0] += 100
    x[x > 100] = -1
    torch.add(x[0], 1, out=x[2])
    return x.tolist(), view.tolist(), x.t().contiguous().flatten().tolist()


def versions() -> Any:
    x = torch.ones(3)
    before = x * 2
    x.add_(5)
    after = x * 2
    return after.tolist(), x.tolist(), before.tolist()  # what was made earlier is asked for last


QUESTIONS: dict[str, Callable[[], Any]] = {
    "item": lambda: (torch.arange(5).sum() * 3).item(),
    "float": lambda: float(torch.tensor(2.5).exp()),
    "if": lambda: "yes" if (torch.arange(4) > 2).any() else "no",
    "tolist": lambda: torch.arange(6).reshape(2, 3).t().tolist(),
    "numpy": lambda: torch.arange(6).reshape(2, 3).t().numpy().tolist(),
    "array": lambda: np.asarray(torch.linspace(0, 1, 5)).tolist(),
    "nonzero": lambda: (torch.arange(10) % 3 == 0).nonzero().tolist(),
    "where": lambda: [part.tolist() for part in torch.where(torch.eye(3) > 0)],
    "mask": lambda: torch.arange(10)[torch.arange(10) % 4 == 1].tolist(),
    "mask of rows": lambda: torch.arange(12).reshape(4, 3)[torch.tensor([True, False, False, True])].tolist(),
    "mask in two dimensions": lambda: torch.arange(4).reshape(2, 2)[torch.eye(2) > 0].tolist(),
    "unique": lambda: [part.tolist() for part in torch.unique(torch.tensor([3, 1, 3, 2]), return_inverse=True)],
    "unique_consecutive": lambda: torch.unique_consecutive(torch.tensor([1, 1, 2, 1])).tolist(),
    "masked_select": lambda: torch.arange(5).masked_select(torch.arange(5) > 2).tolist(),
    "repeat_interleave": lambda: torch.arange(3).repeat_interleave(torch.tensor([2, 0, 1])).tolist(),
    "bincount": lambda: torch.tensor([0, 2, 2]).bincount().tolist(),
    "equal": lambda: torch.equal(torch.arange(3), torch.tensor([0, 1, 2])),
    "nms": lambda: torchvision.ops.nms(*boxes_and_scores(), 0.5).tolist(),
    "topk": lambda: torch.tensor([3.0, 9.0, 5.0]).topk(2).indices.tolist(),
    "writes": writes,
    "versions": versions,
    "reshape after a question": lambda: (torch.arange(8) > 3).nonzero().reshape(2, 2).tolist(),
    "range over a tensor": lambda: list(range(torch.tensor(3))),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_answers_are_true(question: str) -> None:
    expected = QUESTIONS[question]()
    with Tracer():
        assert QUESTIONS[question]() == expected


def test_a_mask_costs_what_the_eager_kernel_takes(tracer: Tracer) -> None:
    picked = torch.arange(1000)[torch.arange(1000) % 2 == 0]
    assert picked.shape == (500,)
    assert tracer.demands == {"nonzero": 1}
    assert "nonzero" in tracer.ledger.build().ops


def test_a_block_has_the_shape_of_its_tensor(tracer: Tracer) -> None:
    made = torch.zeros(7, 3) + torch.ones(3)
    timeline = tracer.ledger.build()
    shapes = {timeline.ops[op]: timeline.shapes[shape] for op, shape in zip(timeline.op, timeline.shape, strict=True)}
    assert (shapes["zeros"], shapes["ones"], shapes["add"]) == ((7, 3), (3,), tuple(made.shape))


def test_the_network_is_never_computed(tracer: Tracer) -> None:
    net = nn.Sequential(nn.Conv2d(256, 512, 7, padding=3), nn.BatchNorm2d(512), nn.ReLU(), nn.Conv2d(512, 512, 7))
    tracer.know_weights(net)
    start = time.monotonic()
    scores = net(torch.rand(8, 256, 256, 256)).flatten()[:1000]  # some 10^13 multiplications
    kept = (scores > 0).nonzero()
    assert 300 < len(kept) < 700  # made up: even odds
    assert scores.square().mean().item() == NETWORK_NUMBER
    assert time.monotonic() - start < 20


def test_loss_item_costs_nothing(tracer: Tracer) -> None:
    net = nn.Linear(8, 8)
    tracer.know_weights(net)
    output = net(torch.rand(2, 8))
    assert output.mean().item() == NETWORK_NUMBER
    assert tracer.contents.value_of(output).storage is None  # not even made up


def test_integers_out_of_the_network_are_computed(tracer: Tracer) -> None:
    net = nn.Linear(8, 8)
    tracer.know_weights(net)
    assert net(torch.rand(2, 8)).argmax().item() in range(16)


def test_random_data_is_computed_and_random_weights_are_not(tracer: Tracer) -> None:
    net = nn.Linear(8, 8)
    tracer.know_weights(net)
    data = torch.empty(1000).uniform_(3, 4)  # as a batch factory may make it
    assert 3 <= data.min().item() < data.max().item() <= 4
    assert set(torch.empty(1000, dtype=torch.int64).random_(2, 5).tolist()) == {2, 3, 4}


def test_a_chain_of_thousands_of_operations(tracer: Tracer) -> None:
    x = torch.zeros(1, dtype=torch.int64)
    for _ in range(3000):
        x = x + 1
    assert x.item() == 3000


def test_real_tensors_are_adopted(tracer: Tracer) -> None:
    assert torch.from_numpy(np.arange(4)).add(1).tolist() == [1, 2, 3, 4]
    assert torch.tensor([[1.5, 2.5]]).sum().item() == 4.0
    assert torch.as_tensor(np.float32(2)).mul(3).item() == 6.0


def test_a_real_tensor_made_before_is_adopted() -> None:
    outside = torch.tensor([4.0, 1.0, 3.0])
    with Tracer() as tracer:
        fake = tracer.adopt(outside)
        assert isinstance(fake, FakeTensor)
        assert fake.sort().values.tolist() == [1.0, 3.0, 4.0]
        assert (torch.ones(3) + outside).tolist() == [5.0, 2.0, 4.0]
        assert fake.zero_().tolist() == [0.0, 0.0, 0.0]
    assert outside.tolist() == [4.0, 1.0, 3.0]  # the user's own is never written to


def alive_at_the_end(timeline: Timeline) -> list[int]:
    return sorted(timeline.bytes[timeline.died == timeline.ticks].tolist())


def test_lifetimes(tracer: Tracer) -> None:
    kept = torch.zeros(1000).add(1)  # zeros dies as soon as the sum is there
    view = torch.zeros(2000)[:10]
    timeline = tracer.ledger.build()
    assert timeline.bytes.tolist() == [4000, 4000, 8000]
    assert (timeline.born.tolist(), timeline.died.tolist()) == ([0, 1, 3], [2, 4, 4])
    assert len(kept) + len(view) == 1010


def test_saved_tensors_live_until_their_node_has_run(tracer: Tracer) -> None:
    x = torch.rand(500, requires_grad=True)
    y = x.exp()  # keeps its result
    z = (y * 3).sum()  # keeps nothing
    del y
    assert 2000 in alive_at_the_end(tracer.ledger.build())[:-1]
    z.backward()
    del z
    gc.collect()
    assert alive_at_the_end(tracer.ledger.build()) == [2000, 2000]  # x and its gradient


@pytest.mark.thorough
def test_takes_no_memory() -> None:
    script = """
import resource, torch
from oomproof.changes.torch.training import Training
from oomproof.trace.torch.loop import Pieces
from oomproof.trace.torch.trace_step import trace_step
import torchvision
trace_step(Pieces(lambda: torch.nn.Linear(2, 2), lambda: torch.rand(2, 2), lambda m, x: m(x).sum()), Training())
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
pieces = Pieces(lambda: torch.nn.Sequential(*(torch.nn.Linear(16384, 16384) for _ in range(6))),
                lambda: torch.rand(16384, 16384), lambda m, x: m(x).sum())
peak = trace_step(pieces, Training(optimizer="adam")).peak().bytes
print(peak, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    peak, grown = map(int, done.stdout.split())
    assert peak > 24 << 30
    assert grown < 1 << 30


def test_code_that_speaks_of_cuda(tracer: Tracer) -> None:
    net = nn.Linear(4, 4).cuda().to("cuda:0").to(torch.device("cuda"))
    x = torch.zeros(2, 4, device="cuda").cuda().to("cuda", non_blocking=True).to(device="cuda:1")
    x = x + torch.rand(4, device=torch.device("cuda", 0)) + torch.ones_like(x, device="cuda").to(x)
    assert {x.device.type, next(net.parameters()).device.type} == {"cpu"}
    with dialect_in_force("cuda"), torch.autocast("cuda", dtype=torch.float16):
        assert net(x).dtype is torch.float16
    with dialect_in_force("cuda"), torch.autocast(device_type="cuda", dtype=torch.bfloat16):
        assert net(x).dtype is torch.bfloat16


@pytest.mark.parametrize("form", ["torch.amp", "torch.cuda.amp"])
@pytest.mark.filterwarnings("ignore:.*torch.cuda.amp:FutureWarning")
def test_grad_scalers_step(tracer: Tracer, form: str) -> None:
    scaler = torch.amp.GradScaler("cuda") if form == "torch.amp" else torch.cuda.amp.GradScaler()
    autocast = torch.autocast("cuda") if form == "torch.amp" else torch.cuda.amp.autocast()
    assert scaler.is_enabled()
    net = nn.Linear(4, 4)
    optimizer = torch.optim.Adam(net.parameters())
    with autocast:
        output = net(torch.rand(2, 4))
    assert output.dtype is torch.float16
    scaler.scale(output.sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert len(optimizer.state) == 2


def test_deepcopies(tracer: Tracer) -> None:
    net = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    net.append(net[0])
    net[0].weight.requires_grad_(False)
    twin = copy.deepcopy(net)
    assert twin[2] is twin[0] and twin[0].weight is not net[0].weight
    assert isinstance(twin[0].weight, nn.Parameter) and not twin[0].weight.requires_grad and twin[0].bias.requires_grad
    assert twin[0].weight.untyped_storage()._cdata != net[0].weight.untyped_storage()._cdata
    assert copy.deepcopy(torch.arange(3)).tolist() == [0, 1, 2]


def test_tied_weights_stay_tied(tracer: Tracer) -> None:
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    net[1].weight = net[0].weight
    net.to(torch.float16)
    assert net[1].weight is net[0].weight and net[0].weight.dtype is torch.float16


def test_pairs_of_nine_hundred_boxes_and_a_large_image_s_anchors_are_computed() -> None:
    def step() -> None:
        boxes, anchors = torch.linspace(0, 1, 900), torch.linspace(0, 1, 267_069)
        pairs = (boxes[:, None] - anchors).abs()  # 0.9 GiB: made up, some of them would be negative
        assert torch.all(pairs >= 0)

    with Tracer():
        step()
