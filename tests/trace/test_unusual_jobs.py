"""Jobs that compile, start threads, make sparse tensors or end the program."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.data import DataLoader, TensorDataset

from oomproof.changes.torch.training import Training
from oomproof.errors import JobError
from oomproof.memory.timeline import Timeline
from oomproof.trace.torch.loop import Pieces
from oomproof.trace.torch.trace_step import trace_step
from oomproof.trace.torch.tracer import Tracer


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))


def traced(
    loss: Callable[[nn.Module, torch.Tensor], Any] = lambda m, x: m(x).sum(), model: Callable[[], Any] = net
) -> Timeline:
    return trace_step(Pieces(model, lambda: torch.rand(4, 8), loss), Training())


def in_place() -> nn.Module:
    model = net()
    model.compile()
    return model


@torch.compile
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


COMPILED_BEFORE = torch.compile(net())
POOL = ThreadPoolExecutor(2)


@pytest.mark.parametrize("model", [lambda: torch.compile(net()), in_place, lambda: COMPILED_BEFORE])
def test_a_compiled_model_is_forecast_as_if_it_were_not(model: Callable[[], nn.Module]) -> None:
    found, plain = traced(model=model), traced()
    assert found.peak().bytes == plain.peak().bytes
    assert found.about.model == plain.about.model == "Sequential"
    assert set(found.owners) == set(plain.owners)  # by the paths that settings name
    assert any("torch.compile" in note for note in found.about.notes)
    assert not plain.about.notes


def test_a_compiled_function_runs_as_it_is_written() -> None:
    assert traced(lambda m, x: doubled(m(x)).sum()).peak().bytes == traced(lambda m, x: (m(x) * 2).sum()).peak().bytes


DATA = TensorDataset(torch.rand(64, 8))
LOADER = DataLoader(DATA, 4, num_workers=1, persistent_workers=True, timeout=60)


@pytest.mark.parametrize("make", [lambda: DataLoader(DATA, 4, num_workers=2, prefetch_factor=4), lambda: LOADER])
def test_a_batch_may_come_from_a_loader_with_workers(make: Callable[[], Any]) -> None:
    pieces = Pieces(net, lambda: next(iter(make()))[0], lambda m, x: m(x).sum())
    assert trace_step(pieces, Training()).peak().bytes == traced().peak().bytes
    assert (LOADER.num_workers, LOADER.timeout) == (1, 60)


DIVIDES = nn.DataParallel.__init__, nn.DataParallel.forward
MADE_BEFORE = nn.DataParallel(net())


@pytest.mark.parametrize(
    "model",
    [
        lambda: nn.DataParallel(net()),
        lambda: nn.DataParallel(net().cuda(), device_ids=[0, 1]),
        lambda: nn.Sequential(nn.DataParallel(net())),
        lambda: MADE_BEFORE,
    ],
)
def test_a_model_for_many_gpus_is_forecast_on_one(model: Callable[[], nn.Module]) -> None:
    found = traced(model=model)
    assert found.peak().bytes == traced().peak().bytes
    assert any("nn.DataParallel" in note and "one GPU" in note for note in found.about.notes)
    assert (nn.DataParallel.__init__, nn.DataParallel.forward) == DIVIDES  # as it was


def test_compile_works_again_afterwards() -> None:
    before = torch.compile, nn.Module.compile
    traced(model=lambda: torch.compile(net()))
    assert before == (torch.compile, nn.Module.compile)


def each_row(pool: ThreadPoolExecutor, model: nn.Module, x: torch.Tensor) -> Any:
    return sum(pool.map(lambda row: (model(row) + torch.ones(8)).exp().sum(), x))


def in_new_threads(model: nn.Module, x: torch.Tensor) -> Any:
    with ThreadPoolExecutor(4) as pool:
        return each_row(pool, model, x)


@pytest.mark.parametrize("loss", [in_new_threads, lambda m, x: each_row(POOL, m, x)])
def test_threads_trace_too(loss: Callable[[nn.Module, torch.Tensor], Any]) -> None:
    threaded = traced(loss)
    plain = traced(lambda m, x: sum((m(row) + torch.ones(8)).exp().sum() for row in x))
    # In which order threads run, and so the peak, is luck; what they make is not.
    for op in ("addmm", "exp", "sum"):
        of_threads, of_none = (sorted(step.bytes[step.op == step.ops.index(op)].tolist()) for step in (threaded, plain))
        assert of_threads == of_none
    assert torch.ones(2).add(1).sum() == 4  # real again


def test_a_thread_that_fails_is_told_as_the_jobs_failure() -> None:
    def loss(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        thread = threading.Thread(target=lambda: model(x[:, :3]))
        thread.start()
        thread.join()
        return model(x).sum()  # type: ignore[no-any-return]

    with pytest.raises(JobError, match=r"the job raised RuntimeError.*test_unusual_jobs.py"):
        traced(loss)


def test_sparse_gradients_are_refused_with_what_to_do() -> None:
    pieces = Pieces(lambda: nn.Embedding(100, 8, sparse=True), lambda: torch.arange(4), lambda m, x: m(x).sum())
    with pytest.raises(JobError, match="sparse=False"):
        trace_step(pieces, Training())


@pytest.mark.parametrize(
    ("optimizer", "words"),
    [
        (torch.optim.SparseAdam, r"SparseAdam, makes no plain update: .*dense gradients.*; take another"),
        (torch.optim.LBFGS, r"LBFGS, makes no plain update: .*'closure'; give the job a `step` of its own"),
    ],
)
def test_an_optimizer_that_makes_no_plain_update_is_named(optimizer: Any, words: str) -> None:
    pieces = Pieces(net, lambda: torch.rand(4, 8), lambda m, x: m(x).sum(), lambda weights: optimizer(list(weights)))
    with pytest.raises(JobError, match=words):
        trace_step(pieces, Training())


def test_an_update_of_the_users_own_that_fails_is_told_with_its_line() -> None:
    class Own(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:
            raise RuntimeError("not today")

    pieces = Pieces(net, lambda: torch.rand(4, 8), lambda m, x: m(x).sum(), lambda weights: Own(weights, lr=0.1))
    with pytest.raises(JobError, match=r"the job raised RuntimeError: not today at .*test_unusual_jobs.py"):
        trace_step(pieces, Training())


def test_ending_the_program_is_a_failure_of_the_job() -> None:
    def loss(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        os._exit(0)

    with pytest.raises(JobError, match=r"os\._exit\(0\)"):
        traced(loss)
    if (child := os.fork()) == 0:
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_what_a_thread_does_meanwhile_is_traced_too(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []

    def run_beside(x: torch.Tensor) -> None:
        with tracer:
            x.expm1()

    def find_shapes(mode: Any, func: Any, *args: Any) -> Any:
        if func is torch.ops.aten.erfc.default and not threads:
            threads.append(threading.Thread(target=run_beside, args=(x,)))
            threads[0].start()
            threads[0].join(0.1)
        return plain(mode, func, *args)

    plain = FakeTensorMode.__torch_dispatch__
    monkeypatch.setattr(FakeTensorMode, "__torch_dispatch__", find_shapes)
    with Tracer() as tracer:
        x = torch.rand(3, 5, 7)
        x.erfc()
        threads[0].join(10)
        assert {"erfc", "expm1"} <= set(tracer.ledger.build().ops)
