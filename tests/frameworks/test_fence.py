"""The fence: private names of other packages are in frameworks/ alone; a version that lacks one is told in one line."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest
import torch

import oomproof
from oomproof.cli import main
from oomproof.errors import UnsupportedVersion
from oomproof.frameworks import versions

PACKAGE = Path(oomproof.__file__).parent
FILES = [path for path in sorted(PACKAGE.rglob("*.py")) if path.parent.name != "frameworks"]
OTHERS = ("torch", "torchvision", "tensorflow", "keras", "jax", "jaxlib", "torch_pruning", "detectron2")
INNER = ("tensorflow.python", "tensorflow.core", "tensorflow.compiler", "keras.src", "jaxlib")
"""module paths without an underscore that are not documented either"""
PYTHONS_OWN = {"_fields", "_exit"}
ASKS_BY_NAME = {"getattr", "hasattr", "setattr", "delattr", "object"}
"""getattr(x, "_name") and patch.object(x, "_name")"""


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in PYTHONS_OWN


def is_fenced_off(module: str) -> bool:
    parts = module.split(".")
    return parts[0] in OTHERS and (any(map(is_private, parts)) or module.startswith(INNER))


@cache
def own_names(folder: Path) -> set[str]:
    """Private methods and attributes of oomproof's own classes in a folder."""
    found = set()
    for path in folder.glob("*.py"):
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                found |= {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
                found |= {ast.unparse(each.target) for each in node.body if isinstance(each, ast.AnnAssign)}
                found |= {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute) and _is_set(each)}
    return found


def _is_set(node: ast.Attribute) -> bool:
    return isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name) and node.value.id == "self"


def private_access(path: Path) -> Iterator[str]:
    own = own_names(path.parent)
    for node in ast.walk(ast.parse(path.read_text())):
        place = f"{path.relative_to(PACKAGE)}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.Attribute) and is_private(node.attr) and node.attr not in own:
            yield f"{place}: {ast.unparse(node)}"
        elif isinstance(node, ast.Import):
            yield from (f"{place}: {each.name}" for each in node.names if is_fenced_off(each.name))
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{each.name}" for each in node.names]
            yield from (f"{place}: {name}" for name in names if is_fenced_off(name))
        elif isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            given = [each.value for each in node.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
            if called in ASKS_BY_NAME:
                yield from (f"{place}: {called} {name}" for name in given if is_private(name) and name not in own)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and is_fenced_off(node.value):
            yield f"{place}: {node.value!r}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_private_names_are_behind_the_fence(path: Path) -> None:
    assert not list(private_access(path))


@pytest.mark.parametrize(
    "code",
    [
        "import torch\n\ntorch._C._x()\n",
        "def f(x):\n    return x._version\n",
        "def f():\n    from tensorflow.python.eager import context\n",
        "from keras.src import backend\n",
        "import jax._src\n",
        "def f(x):\n    return getattr(x, '_parameters')\n",
        "import logging\n\nlogging.getLogger('torch._dynamo')\n",
        "import torch.utils._pytree as pytree\n",
    ],
)
def test_the_fence_finds_each_way_around_it(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "code.py"
    path.write_text(code)
    monkeypatch.setattr(sys.modules[__name__], "PACKAGE", tmp_path)
    assert len(list(private_access(path))) > 0


def load_again(name: str) -> ModuleType:
    """A second copy of one of the fence's files, as a process with another version would load it."""
    spec = importlib.util.spec_from_file_location(f"another_{name}", PACKAGE / "frameworks" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("owner", "name", "said"),
    [
        (torch._C, "_current_autograd_node", "torch._C._current_autograd_node"),
        (torch.library.Library, "_destroy", "torch.library.Library._destroy"),
        (sys.modules["torch._guards"], "active_fake_mode", "torch._guards.active_fake_mode"),
    ],
)
def test_a_version_that_lacks_a_name(owner: object, name: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    load_again("torch")
    monkeypatch.delattr(owner, name)
    with pytest.raises(UnsupportedVersion) as raised:
        load_again("torch")
    text = str(raised.value)
    assert text.startswith("oomproof was made for PyTorch 2.4 to 2.14; ") and said in text
    assert text.endswith("pip install 'torch>=2.4,<2.15'") and "\n" not in text


@pytest.mark.thorough
def test_the_command_says_it_in_one_line() -> None:
    """In a process of its own, in which the missing name was never there."""
    code = (
        "import sys, torch; del torch._C._current_graph_task_id\n"
        "from oomproof.cli import main\n"
        "sys.exit(main(['check', 'torchvision:resnet18', '--on', '8GiB', '-q']))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert re.fullmatch(
        r"oomproof: oomproof was made for PyTorch 2\.4 to 2\.14; \S+ lacks torch\._C\._current_graph_task_id: pip .*\n",
        ran.stderr,
    ), ran.stderr


def test_a_setting_that_needs_a_newer_version(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delattr(torch.optim, "Adafactor", raising=False)
    job = ["check", "torchvision:resnet18", "--on", "8GiB", "--batch", "1", "--image-size", "64x64", "-q"]
    assert main([*job, "--set", "optimizer=adafactor"]) == 1
    line = capsys.readouterr().err
    assert re.match(r"oomproof: optimizer=adafactor needs PyTorch 2\.5 or newer, and \S+ is installed: pip", line), line


def test_the_installed_versions_have_all_that_is_used() -> None:
    pytest.importorskip("keras")
    from oomproof.frameworks import keras

    keras.probe()


def test_ranges_are_those_of_the_project() -> None:
    import tomllib

    project = tomllib.loads((PACKAGE.parent.parent / "pyproject.toml").read_text())["project"]
    every = [each for extra in project["optional-dependencies"].values() for each in extra]
    for edge in versions.EDGES:
        ranges = {each.removeprefix(edge.package) for each in every if re.match(rf"{edge.package}[<>=]", each)}
        *front, last = edge.newest.split(".")
        assert ranges == {f">={edge.oldest},<{'.'.join(front)}.{int(last) + 1}"}, edge.name
