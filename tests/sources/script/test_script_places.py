"""Values in a script and in files that it reads: found by name, confirmed by a run, changed as a diff."""

from __future__ import annotations

from pathlib import Path

import pytest

from oomproof.cli import main
from oomproof.sources.script.options import find_options, find_written, try_value
from oomproof.sources.script.places import edit, find_in_script, find_in_settings

SCRIPT = '''"""Zwölf Größen: bytes are not characters."""
BATCH_SIZE, EPOCHS = 16, 3
config = {"image_size": 224, "amp": False, "größe": 5}
note = "é"; loader = DataLoader(data, batch_size=32, shuffle=True)
dataset = dataset.shuffle(100).batch(8)
def main(batch: int = 4, *, lr=0.1): ...
'''


def test_constants_of_a_script(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(SCRIPT, encoding="utf-8")
    found = {(each.name, each.place.line): each for each in find_in_script(str(file))}
    assert found.keys() >= {
        ("BATCH_SIZE", 2), ("EPOCHS", 2), ("image_size", 3), ("amp", 3), ("batch_size", 4), ("batch", 5), ("batch", 6),
    }  # fmt: skip
    for each in found.values():
        [(_, content)] = edit({each.place: 7}).items()
        line = content.decode().splitlines()[each.place.line - 1]
        assert "7" in line and str(each.value) not in line.replace(str(7), "")
    both = edit({found["BATCH_SIZE", 2].place: 4, found["amp", 3].place: True})
    assert both[str(file)].decode() == SCRIPT.replace("16", "4", 1).replace("False", "True", 1)


def test_entries_of_settings_files(tmp_path: Path) -> None:
    yaml, json = tmp_path / "a.yaml", tmp_path / "b.json"
    yaml.write_text("train:\n  batch_size: 16   # images\n  amp: false\n  name: 16x\n- size: 8\n")
    json.write_text('{"data": {"batch_size": 32, "lr": 0.1}, "img-size": 64}')
    found = find_in_settings([str(yaml), str(json), str(tmp_path / "none.json")])
    assert [(each.name, each.value, each.place.line) for each in found] == [
        ("batch_size", 16, 2), ("amp", False, 3), ("size", 8, 5), ("batch_size", 32, 1), ("img-size", 64, 1),
    ]  # fmt: skip
    edited = edit({found[0].place: 4, found[1].place: True})
    assert edited[str(yaml)].decode() == yaml.read_text().replace("16 ", "4 ").replace("false", "true")


def test_what_the_command_line_has_is_not_looked_for_in_files(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(SCRIPT, encoding="utf-8")
    option = {"name": "batch_size", "option": "--batch-size", "spelt": ["--batch-size"], "value": 16, "switch": False}
    guesses = find_written(find_in_script(str(file)), find_options([option]))
    assert {(each.part, each.value) for each in guesses} == {("image size", 224), ("precision", False)}
    assert [try_value(each) for each in guesses] == [192, True]


TRAINS = """
import json, torch
config = json.load(open("config.json"))
VAL_BATCH = 64
net = torch.nn.Sequential(torch.nn.Conv2d(3, 64, 3), torch.nn.ReLU(), torch.nn.Conv2d(64, 8, 3)).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
validation = torch.utils.data.DataLoader(torch.rand(8, 3), batch_size=4)
for _ in range(100):
    images = torch.rand(config["batch_size"], 3, 128, 128, device="cuda")
    net(images).mean().backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.slow
@pytest.mark.thorough
def test_fit_changes_the_file_that_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(TRAINS)
    (tmp_path / "config.json").write_text('{"batch_size": 64, "lr": 1}\n')
    (tmp_path / "config.json").chmod(0o640)
    words = ["fit", "-q", "--on", "900MiB", "--allow", "batch_size", "--leave", "expandable_segments"]
    assert main([*words, "--write", "--", "python", "train.py"]) == 0
    shown = capsys.readouterr().out
    assert '-{"batch_size": 64, "lr": 1}' in shown and "run python train.py" in shown
    assert '"batch_size": 64' not in (tmp_path / "config.json").read_text()
    assert (tmp_path / "config.json.orig").read_text() == '{"batch_size": 64, "lr": 1}\n'
    assert (tmp_path / "train.py").read_text() == TRAINS


CLICKED = """
import click, torch

@click.command()
@click.option("--batch-size", "-b", default=8)
@click.option("--amp/--no-amp", default=False)
def main(batch_size, amp):
    net = torch.nn.Linear(1000, 1000).cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    while True:
        net(torch.rand(batch_size, 1000, device="cuda")).sum().backward()
        optimizer.step()

main()
"""


@pytest.mark.thorough
@pytest.mark.slow
def test_click_options_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("click")
    from oomproof.sources.script.command import read_command
    from oomproof.sources.script.job import ScriptJob
    from oomproof.sources.settings import resolve
    from oomproof.trace.request import TraceRequest

    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(CLICKED)
    job = ScriptJob(read_command("python train.py -b 4"))
    job.trace(TraceRequest(resolve(job, {})))
    assert {(each.part, each.option, each.value) for each in job.seen.options} == {
        ("batch", "--batch-size", 4), ("precision", "--amp", False),
    }  # fmt: skip
    assert job.with_settings({"batch_size": 2}).text == "python train.py -b 2"
