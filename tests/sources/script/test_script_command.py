"""What a command line says, which of its options decide about memory, and what a notebook holds."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from oomproof.errors import InputError
from oomproof.memory.settings import Settings
from oomproof.sources.script.child.notebook import read_notebook
from oomproof.sources.script.command import is_command, read_command
from oomproof.sources.script.options import find_options, option_knobs, set_options


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "train.py").write_text("")
    (tmp_path / "sub dir").mkdir()
    (tmp_path / "sub dir" / "my train.py").write_text("")


@pytest.mark.parametrize(
    ("text", "kind", "target", "arguments", "ranks"),
    [
        ("python train.py --lr 0.1", "file", "train.py", ("--lr", "0.1"), None),
        ("-- python3.11 -u -X utf8 train.py", "file", "train.py", (), None),
        ("python -m package.train -b 4", "module", "package.train", ("-b", "4"), None),
        ("python -c 'import train' x", "code", "import train", ("x",), None),
        ("CUDA_VISIBLE_DEVICES=1 python 'sub dir/my train.py' a", "file", "sub dir/my train.py", ("a",), None),
        ("uv run python train.py", "file", "train.py", (), None),
        ("./train.py --x", "file", "./train.py", ("--x",), None),
        ("torchrun --standalone --nproc-per-node=4 train.py --lr 1", "file", "train.py", ("--lr", "1"), 4),
        ("torchrun --nnodes 1 --nproc_per_node 2 -m package.train", "module", "package.train", (), 2),
        ("python -m torch.distributed.run --nproc-per-node 8 train.py", "file", "train.py", (), 8),
        ("accelerate launch --multi_gpu --num_processes 2 train.py", "file", "train.py", (), 2),
    ],
)
def test_commands(text: str, kind: str, target: str, arguments: tuple[str, ...], ranks: int | None) -> None:
    assert is_command(text)
    command = read_command(text)
    assert (command.kind, command.target, command.arguments, command.ranks) == (kind, target, arguments, ranks)
    assert command.python == sys.executable
    assert read_command(command.text) == command


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("python", "names no script"),
        ("python nowhere.py", "there is no file nowhere.py"),
        ("torchrun --nproc-per-node 2", "names no script"),
        ("python 'train.py", "cannot be read"),
        ("/bin/sh -c true", "is not a Python program"),
        ("/no/python train.py", "there is no Python at /no/python"),
        ("python2.6 train.py", "there is no python2.6 here: nothing on PATH has that name"),
        ("nonsense train.py", "there is no command 'nonsense'"),
        ("A=1", "there is no command after --"),
    ],
)
def test_what_is_not_a_command(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_command(text)


@pytest.mark.parametrize("text", ["torchvision:resnet50", "job.py:job", "config.yaml", "train_net.py", "it's"])
def test_other_jobs_are_not_commands(text: str) -> None:
    assert not is_command(text)


def told(name: str, option: str, value: object, *, switch: bool = False) -> dict[str, object]:
    return {"name": name, "option": option, "spelt": [option], "value": value, "switch": switch}


def test_options_are_known_by_name_and_set_in_place() -> None:
    found = find_options(
        [
            told("lr", "--lr", 0.1),
            told("batch_size", "--batch-size", 16),
            told("accum_iter", "--accum_iter", 1),
            told("amp", "--amp", False, switch=True),
            told("img_size", "--img-size", 224),
        ]
    )
    assert [each.part for each in found] == ["batch", "accumulation", "precision", "image size"]
    chosen = dict(zip(found, (4, 4, True), strict=False))
    assert set_options(("--batch-size=16", "--lr", "1"), chosen) == (
        "--batch-size=4", "--lr", "1", "--accum_iter", "4", "--amp",
    )  # fmt: skip
    settings = Settings({"batch_size": 16, "accum_iter": 1, "amp": False, "img_size": 224})
    knobs = {knob.name: knob for knob in option_knobs(found, settings)}
    assert knobs["batch_size"].promise == "equivalent"
    assert all(
        option.settings["batch_size"] * option.settings["accum_iter"] == 16 for option in knobs["batch_size"].options
    )
    alone = option_knobs(find_options([told("bs", "--bs", 16)]), Settings({"bs": 16}))
    assert [knob.promise for knob in alone] == ["different"]


def test_the_command_has_what_the_run_around_it_needs() -> None:
    from oomproof.sources.script.job import ScriptJob

    job = ScriptJob(read_command("python train.py"))
    assert job.command_to_run({}) == "python train.py"
    told = job.command_to_run({"expandable_segments": True})
    assert told == "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True python train.py"
    job.seen.runtime["memory_growth"] = True
    assert job.command_to_run({"memory_growth": True}) == "python train.py"
    assert job.command_to_run({"memory_growth": False}) == "TF_FORCE_GPU_ALLOW_GROWTH=false python train.py"


def test_notebook(tmp_path: Path) -> None:
    cells = [
        {"cell_type": "markdown", "source": ["# title"]},
        {"cell_type": "code", "source": ["%matplotlib inline\n", "!pip install x\n", "import os\n", "files = !ls"]},
        {"cell_type": "code", "source": "%%bash\nrm -rf /"},
        {"cell_type": "code", "source": "print('50 %')\nif True:\n    %time x = 1\n"},
    ]
    file = tmp_path / "n.ipynb"
    file.write_text(json.dumps({"cells": cells}))
    found = list(read_notebook(file))
    assert [name.rpartition(", ")[2] for name, _ in found] == ["cell 2", "cell 4"]
    for _, source in found:
        compile(source, "cell", "exec")
    file.write_text("{}")
    with pytest.raises(InputError, match="is not a notebook"):
        list(read_notebook(file))
