"""Changes of a script's code: modules that are computed again, gradients of several batches, workers."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest
import torch

from oomproof.cli import main
from oomproof.errors import CannotDo
from oomproof.sources.script.accumulating import find_accumulation
from oomproof.sources.script.command import read_command
from oomproof.sources.script.job import ScriptJob
from oomproof.sources.script.places import edit
from oomproof.sources.script.recomputing import ModelAt
from oomproof.sources.settings import resolve
from oomproof.trace.request import TraceRequest

TRAINS = '''"""A loop as people write it."""
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BATCH = 32


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1))

    def forward(self, x):
        return x + self.inner(x)


def build():
    return nn.Sequential(nn.Conv2d(3, 64, 3), *[Block() for _ in range(6)], nn.AdaptiveAvgPool2d(1), nn.Flatten())


def main():
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    net = build().to(device)
    optimizer = torch.optim.SGD(
        net.parameters(),
        lr=0.01,
    )
    data = TensorDataset(torch.rand(128, 3, 64, 64), torch.randint(0, 64, (128,)))
    loader = DataLoader(data, batch_size=BATCH, num_workers=4)
    for number, (x, y) in enumerate(loader):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x.to(device)), y.to(device))
        loss.backward()
        optimizer.step()
    torch.save(net.state_dict(), sys.argv[1])


if __name__ == "__main__":
    main()
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(TRAINS)
    return tmp_path


def test_lines_are_put_before_the_statement() -> None:
    at = ModelAt("train.py", TRAINS.splitlines().index("        lr=0.01,") + 1, "net", "module.", "")
    added = at.insert(TRAINS.encode(), "module.1,module.2:4").decode()
    lines = added.splitlines()
    assert lines[lines.index("    optimizer = torch.optim.SGD(") - 1] == '    oomproof.recompute(net, "1,2:4")'
    assert lines[lines.index("import oomproof") - 1].startswith("from torch.utils.data")
    kept = [line for line in lines if "oomproof" not in line]
    assert kept == TRAINS.splitlines()
    with pytest.raises(CannotDo, match="other is not a part of net"):
        at.paths_in("other")
    windows = at.insert(TRAINS.replace("\n", "\r\n").encode(), "module.1")
    assert b"\n" not in windows.replace(b"\r\n", b"")


def test_one_line_statements_are_not_cut() -> None:
    source = b"import torch\nfor _ in range(3): make(model)\nif True:\n    make(model)\n"
    inside = ModelAt("train.py", 2, "model", "", "").insert(source, "a").decode().splitlines()
    assert inside[2:4] == ['oomproof.recompute(model, "a")', "for _ in range(3): make(model)"]
    assert (
        '    oomproof.recompute(model, "a")\n    make' in ModelAt("t", 4, "model", "", "").insert(source, "a").decode()
    )


@pytest.mark.thorough
@pytest.mark.slow
def test_fit_computes_blocks_again(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The patched script trains to the same weights as the one that was there."""
    words = ["fit", "-q", "--keep", "identical", "--leave", "expandable_segments", "--on", "1300MiB", "--write"]
    assert main([*words, "--", "python", "train.py", "a.pt"]) == 0
    shown = capsys.readouterr().out
    assert '+    oomproof.recompute(net, "' in shown and "computed again" in shown
    assert "run python train.py a.pt" in shown
    assert (folder / "train.py.orig").read_text() == TRAINS
    trained = []
    for source in (TRAINS, (folder / "train.py").read_text()):  # both for real, with few and small images
        small = source.replace("rand(128, 3, 64, 64)", "rand(128, 3, 12, 12)").replace(", num_workers=4", "")
        (folder / "small.py").write_text(small.replace("BATCH = 32", "BATCH = 64"))
        monkeypatch.setattr(sys, "argv", ["small.py", "small.pt"])
        runpy.run_path("small.py", run_name="__main__")
        trained.append(torch.load("small.pt"))
    assert trained[0].keys() == trained[1].keys()
    assert all(torch.equal(trained[0][name], trained[1][name]) for name in trained[0])


@pytest.mark.thorough
@pytest.mark.slow
def test_accumulation_is_a_line_after_the_optimizer(folder: Path) -> None:
    job = ScriptJob(read_command("python train.py a.pt"))
    settings = job.settings_for_plans(resolve(job, {}))
    knobs = {knob.name: knob for knob in job.knobs(settings, job.trace(TraceRequest(settings)).about)}
    assert knobs["BATCH"].promise == "equivalent"
    chosen = settings.with_values({"BATCH": 8, "accumulation": 4, "workers": 1})
    shown = job.show_change(chosen)
    assert "+BATCH = 8" in shown and "+    oomproof.accumulate(optimizer, 4)" in shown and "num_workers=1)" in shown
    whole, parts = (job.trace(TraceRequest(each)).peak().bytes for each in (settings, chosen))
    assert parts < 0.5 * whole
    assert job.show_change(settings) == ""


def test_arguments_of_trainers(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text("import lightning as L\ntrainer = L.Trainer(\n    max_epochs=3, devices=1)\n")
    [found] = find_accumulation(str(file), None)
    changed = edit({found.place: 4})[str(file)].decode()
    assert "    accumulate_grad_batches=4, max_epochs=3, devices=1)" in changed
    file.write_text("from transformers import TrainingArguments\na = TrainingArguments('out', **more)\n")
    assert find_accumulation(str(file), None) == []
    file.write_text("class Trainer: ...\nTrainer(epochs=3)\n")
    assert find_accumulation(str(file), None) == []


@pytest.mark.slow
def test_what_goes_by_single_batches_is_not_accumulated(folder: Path) -> None:
    clipped = TRAINS.replace("loss.backward()", "loss.backward(); nn.utils.clip_grad_norm_(net.parameters(), 1.0)")
    (folder / "train.py").write_text(clipped)
    job = ScriptJob(read_command("python train.py a.pt"))
    job.trace(TraceRequest(resolve(job, {})))
    assert not [each for each in job.seen.guesses if each.part == "accumulation"]
