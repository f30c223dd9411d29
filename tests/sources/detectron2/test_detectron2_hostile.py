"""Configs that stand for more than any memory holds, or for what no config has: one line, before any work."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from oomproof.errors import InputError
from oomproof.sources.detectron2.config.config import read
from oomproof.sources.detectron2.config.schema import DEFAULTS
from oomproof.sources.detectron2.config.yaml_file import parse, read_text
from oomproof.sources.detectron2.script.expression import evaluate_text
from oomproof.sources.detectron2.script.script import open_script
from oomproof.sources.settings import resolve


def fan(first: str, other: str) -> str:
    """Nine references to the line before, on each of nine lines."""
    lines = [f"a0: &a0 {first}", *(f"a{i}: &a{i} {other.format(','.join([f'*a{i - 1}'] * 9))}" for i in range(1, 10))]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (fan("[x]", "[{}]"), "more than 100000 keys and values"),
        (fan("{x: 1}", "{{<<: [{}]}}"), "more than 100000 keys and values"),
        ("A: &a [*a]\n", "leads back to itself"),
        ("A: &a {<<: *a, b: 1}\n", "leads back to itself"),
        ("A: 2020-99-99\n", "month must be in 1..12"),
        ("A: !!int foo\n", "not what its form in YAML says"),
        ("A: " + "9" * 5000, "not what its form in YAML says"),
        ("[" * 5000, "nested too deeply"),
        ("a: 1\n" * 30_000, "larger than 128 KiB"),
    ],
)
def test_yaml_that_no_config_has(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words) as raised:
        parse(text, "c.yaml")
    assert "\n" not in str(raised.value) and len(str(raised.value)) < 300


@pytest.mark.parametrize("value", ["2020-01-01", "!!set {a, b}", "!!omap [a: 1]"])
def test_values_of_other_types_are_told(tmp_path: Path, value: str) -> None:
    (tmp_path / "c.yaml").write_text(f"SOLVER:\n  MAX_ITER: {value}\n")
    with pytest.raises(InputError, match=r"c\.yaml:2: SOLVER.MAX_ITER must be a whole number"):
        read(tmp_path / "c.yaml")


@pytest.mark.parametrize("default", [int, float, tuple, list])
def test_keys_without_a_value_are_told(tmp_path: Path, default: type) -> None:
    """Detectron2 reads null for any key, and stops where it counts with it; a few it can do without."""
    found = [key for key, value in DEFAULTS.items() if type(value) is default and key != "VERSION"]
    left = []
    for key in found:
        *sections, last = key.split(".")
        lines = [f"{'  ' * depth}{name}:" for depth, name in enumerate(sections)]
        (tmp_path / "c.yaml").write_text("\n".join([*lines, f"{'  ' * len(lines)}{last}: null\n"]))
        try:
            read(tmp_path / "c.yaml")
        except InputError as error:
            assert f"c.yaml:{len(lines) + 1}: {key} has no value (null)" in str(error)
        else:
            left.append(key)
    assert set(left) <= {"SOLVER.WEIGHT_DECAY_NORM", "SOLVER.BIAS_LR_FACTOR"} and len(left) < len(found)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (f"SOLVER:\n  IMS_PER_BATCH: {10**29}\n", "SOLVER.IMS_PER_BATCH"),
        ("SOLVER:\n  MAX_ITER: 0x7fffffffffffffff\n", "SOLVER.MAX_ITER"),
        (f"INPUT:\n  MIN_SIZE_TRAIN: [800, {10**30}]\n", "INPUT.MIN_SIZE_TRAIN"),
    ],
)
def test_numbers_that_nobody_trains_with_are_told_where_they_stand(tmp_path: Path, text: str, key: str) -> None:
    """When the file is read: a framework would take seconds and hundreds of megabytes first."""
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(InputError, match=rf"c\.yaml:2: {key} must be at most 2147483647; got") as raised:
        read(tmp_path / "c.yaml")
    assert len(str(raised.value)) < 300 + len(str(tmp_path))
    (tmp_path / "seed.yaml").write_text(f"SEED: {1 << 40}\n")
    assert read(tmp_path / "seed.yaml").values["SEED"] == 1 << 40, "a seed may be any number"


def test_bases_that_fan_out(tmp_path: Path) -> None:
    (tmp_path / "0.yaml").write_text("VERSION: 2\n")
    for number in range(1, 9):
        bases = ", ".join([f"{number - 1}.yaml"] * 9)
        (tmp_path / f"{number}.yaml").write_text(f"_BASE_: [{bases}]\n")
    with pytest.raises(InputError, match="more than 64 files"):
        read(tmp_path / "8.yaml")


@pytest.mark.parametrize(
    "text",
    ["10**10**10", "'a'*10**9", "[0]*10**9", "round(12345678901, -10**30)", "-" * 20_000 + "1",
     "[[list(range(1000)) for y in range(1000)] for x in range(1000)]"],
)  # fmt: skip
def test_arithmetic_without_end(text: str) -> None:
    with pytest.raises(InputError, match="not plain arithmetic"):
        evaluate_text(text)


@pytest.mark.parametrize(
    "lines",
    [
        "x = [1]\n" + "x = [x, x]\n" * 22 + "x = len(str(x))",
        "x = [1]\n" + "x.extend(x)\n" * 22 + "x = len(x) * 0 + 2",
        "x = (1,)\n" + "x = (x, x)\n" * 22 + "x = len(str(x))",
        "x = (1,)\n" + "x = tuple(zip(x, x))\n" * 22 + "x = len(str(x))",
        "x = {'a': 1}\n" + "x = {'a': x, 'b': x}\n" * 22 + "x = len(str(x))",
        "x = sum([[0] * 1000] * 1000, [])[0] + 2",
        "x = round(5, -10**7) + 2",
    ],
    ids=["lists", "a list by itself", "tuples", "zipped", "dicts", "a sum", "rounding"],
)
def test_values_of_scripts_that_double_from_line_to_line(tmp_path: Path, lines: str) -> None:
    """With sixty such lines they would have more parts than any memory holds."""
    code = f"cfg = get_cfg()\n{lines}\ncfg.SOLVER.IMS_PER_BATCH = x\nDefaultTrainer(cfg).train()\n"
    (tmp_path / "train_net.py").write_text(code)
    job = open_script(tmp_path / "train_net.py", (), "")
    with pytest.raises(InputError, match=r"SOLVER\.IMS_PER_BATCH"):
        resolve(job, {})
    assert resolve(job, {"SOLVER.IMS_PER_BATCH": 8})["SOLVER.IMS_PER_BATCH"] == 8


@pytest.mark.skipif(sys.platform != "linux", reason="pipes and devices as Linux has them")
def test_pipes_and_devices_are_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "zero.yaml").symlink_to("/dev/zero")
    for name in ("pipe.yaml", "zero.yaml"):
        with pytest.raises(InputError, match="a pipe, socket or device"):
            read_text(tmp_path / name)
