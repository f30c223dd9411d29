"""``import oomproof``: the names people may rely on, and nothing loaded before it is used."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import oomproof


def test_public_names() -> None:
    assert oomproof.__all__ == [
        "BatchRule",
        "DamagedFile",
        "Dataset",
        "Diagnosis",
        "Forecast",
        "Guard",
        "ImageSpec",
        "InputError",
        "Job",
        "JobError",
        "KerasJob",
        "Knob",
        "OomproofError",
        "Opening",
        "Option",
        "OutOfMemory",
        "Plan",
        "Setting",
        "Settings",
        "Source",
        "Step",
        "TensorFlowJob",
        "Timeline",
        "TorchJob",
        "TraceRequest",
        "Unanswerable",
        "__version__",
        "accumulate",
        "check",
        "explain",
        "fit",
        "measure",
        "read_dataset",
        "read_settings",
        "recompute",
        "slim",
        "sweep",
        "what_if",
    ]
    for name in oomproof.__all__:
        assert getattr(oomproof, name) is not None
    assert not hasattr(oomproof, "no_such_name")


def test_version_is_the_packages() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert oomproof.__version__ == project["version"]


def test_import_loads_neither_numpy_nor_a_framework() -> None:
    code = "import sys, oomproof; print([name for name in ('numpy', 'torch', 'rich', 'typer') if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
