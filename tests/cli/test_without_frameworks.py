"""An installation without PyTorch, without TensorFlow, without both: every command answers, or says what to install."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import venv
from pathlib import Path

import pytest

from thorough import thorough_but

ROOT = Path(__file__).parents[2]
TORCH = ("torch", "torchvision", "detectron2")
TENSORFLOW = ("tensorflow", "keras", "keras_hub", "jax", "h5py")
MISSING = {"torch": TORCH, "tensorflow": TENSORFLOW, "both": (*TORCH, *TENSORFLOW)}
ANSWERED = ("check {step} --on 8GiB -q", "explain {log}", "data {folder}", "gpus", "check --help", "fit --help")
NEEDS = {
    "check torchvision:resnet18 --on 8GiB -q": "torch",
    "fit torchvision:resnet18 --on 8GiB -q": "torch",
    "check COCO-Detection/retinanet_R_50_FPN_3x.yaml --on 8GiB -q": "torch",
    "check {torch_job}:job --on 8GiB -q": "torch",
    "zoo --on 8GiB -q": "torch",
    "measure torchvision:resnet18 -q": "torch",
    "measure torchvision:resnet18 -q --keep": "torch",
    "check keras:MobileNetV2 --on 8GiB -q": "tensorflow",
    "check {keras_file} --on 8GiB -q": "tensorflow",
    "check {keras_job}:job --on 8GiB -q": "tensorflow",
    "check keras:MobileNetV2 --backend jax --on 8GiB -q": "tensorflow",
}
"""commands, and the framework without which they cannot answer"""
BLOCKED = """
import importlib.machinery
import sys
real = importlib.machinery.PathFinder.find_spec
importlib.machinery.PathFinder.find_spec = classmethod(  # as where nothing of that name is installed
    lambda cls, name, *more: None if name.split(".")[0] in {missing!r} else real(name, *more)
)
from oomproof.cli import main
for line in {commands!r}:
    print("<<<", line, flush=True)
    code = main(line.split())
    print(">>>", code, flush=True)
"""


@pytest.fixture
def places(step: str, tmp_path: Path) -> dict[str, str]:
    (tmp_path / "train.log").write_text("RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n")
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "1.txt").write_text("0 0.5 0.5 0.2 0.2\n")
    (tmp_path / "torch_job.py").write_text(
        "import torch\nimport oomproof\n\ndef job():\n    return torch.nn.Linear(2, 2)\n"
    )
    (tmp_path / "keras_job.py").write_text("import keras\nimport oomproof\n\ndef job():\n    return keras.Model()\n")
    (tmp_path / "model.keras").write_bytes(b"PK\x05\x06" + b"\0" * 18)
    return {
        "step": step,
        "log": str(tmp_path / "train.log"),
        "folder": str(tmp_path / "photos"),
        "torch_job": str(tmp_path / "torch_job.py"),
        "keras_job": str(tmp_path / "keras_job.py"),
        "keras_file": str(tmp_path / "model.keras"),
    }


@pytest.mark.parametrize("without", thorough_but(["both"], MISSING))
def test_every_command_answers_or_says_what_to_install(without: str, places: dict[str, str]) -> None:
    missing = MISSING[without]
    lacking = {command for command, framework in NEEDS.items() if without in (framework, "both")}
    commands = [command.format(**places) for command in (*ANSWERED, *sorted(lacking))]
    code = textwrap.dedent(BLOCKED).format(missing=missing, commands=commands)
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    codes = [line.split()[1] for line in ran.stdout.splitlines() if line.startswith(">>> ")]
    told = ran.stderr.strip().splitlines()
    assert codes == ["0", "0", *codes[2:3], "0", "0", "0", *(["1"] * len(lacking))], ran.stdout + ran.stderr
    assert "internal error" not in ran.stderr and "Traceback" not in ran.stderr
    complaints = told[-len(lacking) :]
    for command, complaint in zip(sorted(lacking), complaints, strict=True):
        assert complaint.startswith("oomproof: "), complaint
        if command != "check {keras_file} --on 8GiB -q":  # which is damaged, and said to be
            assert "pip install" in complaint, f"{command}: {complaint}"


@pytest.mark.thorough
@pytest.mark.slow
def test_a_wheel_by_itself(tmp_path: Path, places: dict[str, str]) -> None:
    """A real environment with neither: the wheel and what it depends on."""
    venv.create(tmp_path / "env", with_pip=True)
    python = str(tmp_path / "env" / "bin" / "python")
    built = subprocess.run(
        [python, "-m", "pip", "install", "-q", str(ROOT)], capture_output=True, text=True, check=False
    )
    if built.returncode:
        pytest.skip(f"no package index: {built.stderr[-200:]}")
    for command in ("gpus", "--help", f"explain {places['log']}", f"check {places['step']} --on 8GiB -q"):
        ran = subprocess.run([python, "-m", "oomproof", *command.split()], capture_output=True, text=True, check=False)
        assert (ran.returncode, ran.stderr) == (0, ""), f"{command}\n{ran.stderr}"
    for command in NEEDS:
        given = command.format(**places).split()
        ran = subprocess.run([python, "-m", "oomproof", *given], capture_output=True, text=True, check=False)
        assert ran.returncode == 1 and ran.stderr.count("\n") == 1, f"{command}\n{ran.stderr}"
        assert "internal error" not in ran.stderr
