"""Loops of others, none of them changed: Lightning, transformers, accelerate, Ultralytics, torchrun, a notebook."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path

import pytest

from oomproof.errors import JobError
from oomproof.memory.timeline import Timeline
from oomproof.sources.script.command import read_command
from oomproof.sources.script.running import ScriptRun, run_script
from oomproof.trace.request import be_silent

pytestmark = [pytest.mark.slow, pytest.mark.thorough]
HERE = Path(__file__).parent
LOOPS = {
    "python {}/lightning_fit.py": ("lightning", "AdamW"),
    "python {}/hf_trainer.py": ("transformers", "AdamW"),
    "python {}/accelerate_loop.py": ("accelerate", "AdamW"),
    "python {}/ultralytics_train.py": ("ultralytics", "AdamW"),
    "torchrun --nproc-per-node 4 {}/ddp_ranks.py": ("torch", "SGD"),
}


def follow(text: str) -> Timeline:
    return run_script(ScriptRun(read_command(text), patience=600), be_silent)


@pytest.mark.parametrize("text", LOOPS)
def test_loop_of_others(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library, optimizer = LOOPS[text]
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    monkeypatch.chdir(tmp_path)
    step = follow(text.format(HERE / "loops"))
    assert step.about.details["steps"] >= 2
    assert step.about.optimizer == optimizer
    kinds = step.by_kind(step.peak().tick)
    assert kinds["parameter"] > 0 and kinds["optimizer"] >= 0.9 * kinds["parameter"] and kinds["activation"] > 0
    assert bool(step.about.settings.get("ddp")) == text.startswith("torchrun")
    assert step.about.settings.get("processes", 1) == (4 if text.startswith("torchrun") else 1)
    assert not list(tmp_path.iterdir())


TWO_GPUS = """
import lightning, torch
from torch.utils.data import DataLoader, TensorDataset

class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(64, 64)

    def training_step(self, batch, place):
        return self.net(batch[0]).square().mean()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())

trainer = lightning.Trainer(accelerator="gpu", devices=2, strategy="ddp", max_epochs=3)
trainer.fit(Net(), DataLoader(TensorDataset(torch.rand(128, 64)), 16))
"""


@pytest.mark.thorough
def test_lightning_that_starts_its_other_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("lit.py").write_text(TWO_GPUS)
    step = run_script(ScriptRun(read_command("python lit.py"), patience=600, gpus=2), be_silent)
    assert step.about.settings["ddp"] and step.about.settings["processes"] == 2
    with pytest.raises(JobError, match=r"it found one GPU: if it trains on several, add --gpus N$"):
        follow("python lit.py")


def test_notebook_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cells = [
        "%matplotlib inline\nimport torch\nnet = torch.nn.Linear(1000, 1000).cuda()",
        "!pip install nothing\noptimizer = torch.optim.Adam(net.parameters())",
        "for _ in range(100):\n    loss = net(torch.rand(8, 1000, device='cuda')).sum()\n    optimizer.zero_grad()\n"
        "    loss.backward()\n    optimizer.step()",
    ]
    (tmp_path / "n.ipynb").write_text(json.dumps({"cells": [{"cell_type": "code", "source": each} for each in cells]}))
    step = follow("n.ipynb")
    assert step.by_kind(step.ticks - 1)["optimizer"] == 2 * step.by_kind(step.ticks - 1)["parameter"]


def test_updates_that_are_epochs_apart_are_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in Ultralytics with two batches an epoch: it updates once, then adds gradients up until the training ends."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(
        "import torch\n"
        "net = torch.nn.Linear(1000, 1000).cuda()\n"
        "optimizer = torch.optim.Adam(net.parameters())\n"
        "for batch in range(6):\n"
        "    net(torch.rand(8, 1000, device='cuda')).sum().backward()\n"
        "    if batch % 8 == 0:\n"
        "        optimizer.step()\n"
        "        optimizer.zero_grad()\n"
        "    if batch % 2 == 1:\n"
        "        with torch.no_grad():\n"
        "            net(torch.rand(8, 1000, device='cuda'))\n"
        "raise RuntimeError('there is no best.pt')\n"
    )
    step = follow("python train.py")
    assert step.about.details["steps"] == 1
    assert any("one update was seen" in note for note in step.about.notes)
    kinds = step.by_kind(step.ticks - 1)
    assert kinds["optimizer"] == 2 * kinds["parameter"] and kinds["gradient"] == kinds["parameter"]


def test_validation_is_counted_where_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(
        "import torch\n"
        "net = torch.nn.Linear(1000, 1000).cuda()\n"
        "optimizer = torch.optim.SGD(net.parameters())\n"
        "for epoch in range(9):\n"
        "    for _ in range(3):\n"
        "        net(torch.rand(8, 1000, device='cuda')).sum().backward()\n"
        "        optimizer.step()\n"
        "    with torch.no_grad():\n"
        "        out = net(torch.rand(4096, 1000, device='cuda'))\n"
        "        print(out.argmax(1).cpu().numpy().sum())\n"
    )
    command = read_command("python train.py")
    plain = run_script(ScriptRun(command), be_silent)
    whole = run_script(ScriptRun(command, validate=True), be_silent)
    weights, images = (1000 * 1000 + 1000) * 4, 4096 * 1000 * 4
    assert whole.peak().phase == "validation" and plain.peak().phase == "backward"
    assert whole.peak().bytes == 2 * weights + 2 * images  # with gradients; what goes in and what comes out


def test_tensorboard_writes_nothing_and_loads_no_tensorflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where TensorFlow is installed, TensorBoard writes its files by TensorFlow's C++ code."""
    pytest.importorskip("tensorboard")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(
        "import sys, torch\n"
        "from torch.utils.tensorboard import SummaryWriter\n"
        "writer = SummaryWriter('runs/first')\n"
        "net = torch.nn.Linear(1000, 1000).cuda()\n"
        "optimizer = torch.optim.Adam(net.parameters())\n"
        "for step in range(9):\n"
        "    loss = net(torch.rand(8, 1000, device='cuda')).sum()\n"
        "    optimizer.zero_grad(), loss.backward(), optimizer.step()\n"
        "    writer.add_scalar('loss', loss, step)\n"
        "    writer.add_histogram('weight', net.weight, step)\n"
        "    assert 'tensorflow' not in sys.modules\n"
    )
    assert follow("python train.py").about.details["steps"] == 2
    assert [each.name for each in tmp_path.iterdir()] == ["train.py"]


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_programs_that_download_do_not_try_again_for_minutes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in YOLOv5, which downloads a small model by curl to try mixed precision, and goes on without."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(
        "import os, torch\n"
        "code = os.system('curl -s -L http://weights.invalid/small.pt -o small.pt --retry 3 -C -')\n"
        "assert os.waitstatus_to_exitcode(code) == 7, code  # could not connect\n"
        "net = torch.nn.Linear(1000, 1000).cuda()\n"
        "optimizer = torch.optim.SGD(net.parameters())\n"
        "for step in range(9):\n"
        "    net(torch.rand(8, 1000, device='cuda')).sum().backward()\n"
        "    optimizer.step()\n"
    )
    assert follow("python train.py").about.details["steps"] == 2


def test_a_copy_on_which_something_is_tried_is_freed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in YOLOv5, which tries mixed precision on a copy of the model before it trains."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(
        "import copy, torch\n"
        "net = torch.nn.Sequential(torch.nn.Linear(1000, 1000)).cuda()\n"
        "def try_copy():\n"
        "    other = copy.deepcopy(net)\n"
        "    other.itself = [other]  # a cycle\n"
        "    with torch.no_grad():\n"
        "        other[0](torch.rand(8, 1000, device='cuda'))\n"
        "try_copy()\n"
        "optimizer = torch.optim.SGD(net.parameters())\n"
        "for step in range(9):\n"
        "    net(torch.rand(8, 1000, device='cuda')).sum().backward()\n"
        "    optimizer.step()\n"
    )
    step = follow("python train.py")
    peak = step.peak().tick
    assert step.by_kind(peak)["parameter"] == 1001 * 1000 * 4
    assert {owner for owner in step.by_owner(peak) if not owner.startswith("(")} <= {"0", "Sequential"}


@pytest.mark.parametrize("wrapper", ["DataParallel(net)", "parallel.DistributedDataParallel(net, device_ids=[0])"])
def test_wrappers_move_what_they_are_given(wrapper: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(
        "import torch\n"
        "torch.distributed.init_process_group('nccl')\n"
        "class Net(torch.nn.Linear):\n"
        "    def forward(self, given):\n"
        "        assert given[0].is_cuda and given[1]['boxes'].is_cuda\n"
        "        return super().forward(given[0]).sum() + given[1]['boxes'].sum()\n"
        "net = Net(1000, 1000).cuda()\n"
        f"net = torch.nn.{wrapper}\n"
        "optimizer = torch.optim.SGD(net.parameters())\n"
        "for step in range(9):\n"
        "    loss = net([torch.rand(8, 1000), {'boxes': torch.rand(3, 4)}])\n"
        "    assert torch.allclose(loss, loss + 1)  # made up, so nothing speaks against it\n"
        "    assert not torch.allclose(torch.zeros(2, device='cuda'), torch.ones(2, device='cuda'))\n"
        "    loss.backward()\n"
        "    optimizer.step()\n"
    )
    assert follow("python train.py").about.details["steps"] == 2
