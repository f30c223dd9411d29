"""A training may need more after the steps that were seen. What can be found out beforehand is forecast; of the rest
the report's first lines say that it was not seen."""

from __future__ import annotations

import textwrap
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console

from oomproof.api.check import forecast_step
from oomproof.errors import JobError
from oomproof.memory.about import About
from oomproof.memory.cards.devices import find_device
from oomproof.memory.timeline import Timeline
from oomproof.report.terminal import report
from oomproof.sources.job import TraceRequest
from oomproof.sources.script.command import read_command
from oomproof.sources.script.job import ScriptJob, _complete_about
from oomproof.sources.settings import resolve, runtime_settings
from oomproof.trace.torch.session.card import Card
from oomproof.trace.torch.session.session import _limit_watched

NET = """
    import torch
    from torch.utils.data import DataLoader

    def make_net(width=16):
        layers = [torch.nn.Conv2d(3, width, 3), torch.nn.ReLU(), torch.nn.Conv2d(width, 8, 3)]
        return torch.nn.Sequential(*layers).cuda()

    def train(net, optimizer, count=4):
        for _ in range(count):
            net(torch.rand(2, 3, 32, 32, device="cuda")).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
"""
SCRIPTS = {
    "unfreezes": (
        """
        net = make_net()
        net[0].requires_grad_(False)
        train(net, torch.optim.SGD(net[2].parameters(), 0.1))
        net.requires_grad_(True)
        train(net, torch.optim.Adam(net.parameters()))
        """,
        "are frozen in these steps: a script that unfreezes them later needs more",
    ),
    "limits itself": (
        """
        torch.cuda.set_per_process_memory_fraction(0.5)
        net = make_net()
        train(net, torch.optim.Adam(net.parameters()))
        """,
        "torch.cuda.set_per_process_memory_fraction(0.5) leaves it 7.27GiB: give --on 7.27GiB",
    ),
    "optimizer comes late": (
        """
        net = make_net()
        for _ in range(3):
            net(torch.rand(2, 3, 32, 32, device="cuda")).mean().backward()
        train(net, torch.optim.Adam(net.parameters()))
        """,
        "the state of one that comes later is not counted",
    ),
    "one model after another": (
        """
        small, large = make_net(), make_net(64)
        first, second = torch.optim.SGD(small.parameters(), 0.1), torch.optim.Adam(large.parameters())
        train(small, first, 50)
        train(large, second, 50)
        """,
        "Adam made no update while another optimizer made 12",
    ),
    "captures a graph": (
        """
        net = make_net()
        optimizer = torch.optim.Adam(net.parameters(), capturable=True)
        train(net, optimizer, 3)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            train(net, optimizer, 1)
        for _ in range(100):
            graph.replay()
        """,
        "CUDA graphs keep what they captured in a pool of their own",
    ),
    "captures a graph at once": (
        """
        net = make_net()
        optimizer = torch.optim.Adam(net.parameters())
        net = getattr(torch.cuda, "make_graphed_" + "callables")(net, (torch.rand(2, 3, 32, 32, device="cuda"),))
        train(net, optimizer)
        """,
        "CUDA graphs keep what they captured in a pool of their own",
    ),
    "compiles with graphs": (
        """
        net = torch.compile(make_net(), mode="reduce-overhead")
        train(net, torch.optim.Adam(net.parameters()))
        """,
        "torch.compile(mode='reduce-overhead')",
    ),
}
SORTED = """
        lengths = [8] * 400 + [64] * 40

        def collate(sides):
            return torch.rand(len(sides), 3, 8, max(sides))

        if __name__ == "__main__":
            net = make_net()
            optimizer = torch.optim.Adam(net.parameters())
            for images in DataLoader(lengths, batch_size=4, collate_fn=collate, num_workers=WORKERS):
                net(images.cuda()).mean().backward()
                optimizer.step()
                optimizer.zero_grad()
"""
SHARDED = """
        import torch.distributed as dist
        from torch.distributed.fsdp import fully_shard

        dist.init_process_group("nccl")
        net = fully_shard(make_net())
        train(net, torch.optim.Adam(net.parameters()))
"""


def trace(folder: Path, text: str, command: str = "python") -> Timeline:
    file = folder / "train.py"
    file.write_text(textwrap.dedent(NET) + textwrap.dedent(text))
    job = ScriptJob(read_command(f"{command} {file}"))
    return job.trace(TraceRequest(resolve(job, {"patience": "120"}), find_device("T4")))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "unfreezes" else pytest.mark.thorough) for name in SCRIPTS]
)
def test_what_was_not_seen_is_in_the_first_lines(name: str, tmp_path: Path) -> None:
    text, said = SCRIPTS[name]
    step = trace(tmp_path, text)
    console = Console(width=4000)
    with console.capture() as capture:
        console.print(report(forecast_step(step, find_device("T4"), step.about.settings), runtime_settings({})))
    verdict, _, unseen = capture.get().splitlines()[:3]
    assert verdict.startswith("Verdict")
    assert unseen.startswith("Unseen   only ") and said in unseen


def test_a_script_that_limits_itself_is_told_what_is_left() -> None:
    found: dict[str, None] = {}
    with _limit_watched(Card("T4", 16 << 30, (7, 5)), found):
        torch.cuda.set_per_process_memory_fraction(1.0)
        assert not found
        torch.cuda.set_per_process_memory_fraction(0.25, 0)
    assert list(found) == ["torch.cuda.set_per_process_memory_fraction(0.25) leaves it 4GiB: give --on 4GiB"]


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.thorough)])
def test_the_end_of_a_sorted_epoch_is_looked_at(workers: int, tmp_path: Path) -> None:
    step = trace(tmp_path, SORTED.replace("WORKERS", str(workers)))
    assert step.about.batches_seen.startswith("the largest of 64 batches looked at, 4x3x8x64 (the smallest: 4x3x8x8)")
    assert 4 * 16 * 6 * 62 * 4 in step.bytes.tolist()


@pytest.mark.slow
@pytest.mark.thorough
def test_models_that_are_shared_out_are_told_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(JobError, match=r"train.py shares its model out among GPUs by FSDP, which is not followed"):
        trace(tmp_path, SHARDED, "torchrun --nproc-per-node 4")


OF_SEVERAL = """
        import os
        import torch.distributed as dist

        dist.init_process_group("nccl")
        CHOICE
        net = torch.nn.parallel.DistributedDataParallel(torch.nn.Conv2d(3, 4, 3).to(device))
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        for images in DataLoader(torch.rand(16, 3, 32, 32), batch_size=2, pin_memory=True):
            net(images.to(device)).mean().backward()
            optimizer.step()
"""
SHARED = "none of the 4 processes was seen to take a GPU of its own"


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.parametrize(
    ("choice", "shared"),
    [
        ('device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")', True),
        pytest.param('device = "cuda"', True, marks=pytest.mark.thorough),
        ("device = f\"cuda:{int(os.environ['LOCAL_RANK'])}\"", False),
        pytest.param("device = torch.device(dist.get_rank())", False, marks=pytest.mark.thorough),
        pytest.param('torch.cuda.set_device(0); device = "cuda"', False, marks=pytest.mark.thorough),
        pytest.param('os.environ["CUDA_VISIBLE_DEVICES"] = "3"; device = "cuda"', False, marks=pytest.mark.thorough),
    ],
)
def test_processes_that_would_share_a_gpu_are_told(choice: str, shared: bool, tmp_path: Path) -> None:
    step = trace(tmp_path, OF_SEVERAL.replace("CHOICE", choice), "torchrun --nproc-per-node 4")
    assert any(SHARED in each for each in step.about.unseen) == shared
    if shared:
        alone = trace(tmp_path, OF_SEVERAL.replace("CHOICE", choice))
        assert not any("processes was seen" in each for each in alone.about.unseen)


def test_orders_that_differ_are_told() -> None:
    about = About(orders={"a": 100, "b": 111}, details={"steps": 1}, validated=True)
    seen, differ = _complete_about(about, "train.py", {}).unseen
    assert seen.startswith("only one step was seen: nothing that it changes later")
    assert "differs by up to 11% from process to process, and the upper figure covers the highest" in differ
    alike = replace(about, orders={"a": 100, "b": 104, "operation by operation": 180})
    assert len(_complete_about(alike, "train.py", {}).unseen) == 1
