"""Bad input: exit 1, one line on stderr that names what was wrong, nothing on stdout, nothing written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from oomproof.cli.arguments import sweep_values

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def refused(run: Run, tmp_path: Path) -> Callable[..., str]:
    def refused(*arguments: str) -> str:
        before = sorted(tmp_path.rglob("*"))
        code, out, err = run(*arguments, "--quiet")
        assert code == 1, (out, err)
        assert out == ""
        assert err.startswith("oomproof: ")
        assert "internal error" not in err
        assert err.count("\n") == 1 and err.endswith("\n")
        assert sorted(tmp_path.rglob("*")) == before
        return err

    return refused


Refused = Callable[..., str]


def test_unknown_gpu(refused: Refused, step: str) -> None:
    assert "RTX 3061" in refused("check", step, "--on", "RTX 3061")


@pytest.mark.parametrize("size", ["0GiB", "-8GiB", "nanGiB", "infGiB"])
def test_impossible_device_sizes(refused: Refused, step: str, size: str) -> None:
    refused("check", step, "--on", size)


def test_no_gpu_here_asks_for_on(refused: Refused, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from oomproof.errors import InputError

    def gpus() -> None:
        raise InputError("no NVIDIA driver answers")

    monkeypatch.setattr("oomproof.memory.cards.this_machine.gpus", gpus)
    assert refused("check", step) == "oomproof: --on was not given, and no NVIDIA driver answers\n"


def test_missing_file(refused: Refused, tmp_path: Path) -> None:
    assert "nowhere.timeline" in refused("check", str(tmp_path / "nowhere.timeline"), "--on", "8GiB")
    assert "train.py" in refused("check", f"{tmp_path / 'train.py'}:job", "--on", "8GiB")


def test_directory_instead_of_a_file(refused: Refused, tmp_path: Path) -> None:
    folder = tmp_path / "folder.timeline"
    folder.mkdir()
    refused("check", str(folder), "--on", "8GiB")
    refused("check", str(tmp_path), "--on", "8GiB")


def test_truncated_timeline(refused: Refused, step: str) -> None:
    whole = Path(step).read_bytes()
    for length in (0, 3, len(whole) // 2, len(whole) - 1):
        Path(step).write_bytes(whole[:length])
        assert "step.timeline" in refused("check", step, "--on", "8GiB")


@pytest.mark.parametrize("value", ["-1", "many", "nan", ""])
def test_bad_values(refused: Refused, step: str, value: str) -> None:
    refused("check", step, "--on", "8GiB", "--set", f"workers={value}")


@pytest.mark.parametrize("batch", ["0", "-2"])
def test_zero_and_negative_sizes(refused: Refused, batch: str) -> None:
    pytest.importorskip("torchvision")
    assert "batch" in refused("check", "torchvision:resnet18", "--on", "8GiB", "--batch", batch)


def test_unknown_setting_names_the_nearest(refused: Refused, step: str) -> None:
    assert "workers" in refused("check", step, "--on", "8GiB", "--set", "worker=2")


@pytest.mark.parametrize("pair", ["workers", "=3", "workers=", ""])
def test_set_without_both_sides(refused: Refused, step: str, pair: str) -> None:
    assert "--set wants NAME=VALUE" in refused("check", step, "--on", "8GiB", "--set", pair)


def test_one_set_for_two_settings(refused: Refused, step: str) -> None:
    said = refused("check", step, "--on", "8GiB", "--set", "workers=2", "precision=fp16", "batch=4")
    assert "--set precision=fp16 --set batch=4" in said and "Detectron2" not in said


def test_save_into_a_missing_folder_or_onto_one(refused: Refused, step: str, tmp_path: Path) -> None:
    assert "no folder" in refused("check", step, "--on", "8GiB", "--save", str(tmp_path / "no" / "a.timeline"))
    assert "is a folder" in refused("check", step, "--on", "8GiB", "--save", str(tmp_path))


def test_save_with_a_sweep(refused: Refused, step: str, tmp_path: Path) -> None:
    refused("check", step, "--on", "8GiB", "--sweep", "workers=1..2", "--save", str(tmp_path / "a.timeline"))


@pytest.mark.parametrize(
    "sweep", ["workers", "workers=", "workers=1..", "workers=8..1", "workers=a..b", "workers=1,,2", "workers=-4..4"]
)
def test_sweep_nonsense(refused: Refused, step: str, sweep: str) -> None:
    assert "--sweep" in refused("check", step, "--on", "8GiB", "--sweep", sweep)


def test_a_range_with_a_dash_is_shown_with_dots(refused: Refused, step: str) -> None:
    told = refused("check", step, "--on", "8GiB", "--sweep", "workers=1-16")
    assert "expected two dots, --sweep workers=1..16" in told


def test_sweep_of_too_many_values_or_of_nothing_known(refused: Refused, step: str) -> None:
    assert "at most 64" in refused("check", step, "--on", "8GiB", "--sweep", f"workers={','.join('1' * 65)}")
    assert "workers" in refused("check", step, "--on", "8GiB", "--sweep", "worker=1..2")


def test_usage_errors(run: Run) -> None:
    for arguments in (["chek"], ["check"], ["check", "--nope"], ["check", "a", "b"], ["gpus", "--on"]):
        code, out, err = run(*arguments)
        assert (code, out, err.count("\n")) == (1, "", 1), arguments
        assert err.startswith("oomproof: ")
    assert run("check", "--nope")[2].rstrip().endswith(". See: oomproof check --help")
    assert run("chek")[2].rstrip().endswith("Did you mean 'check'? See: oomproof --help")


def test_ranges() -> None:
    assert sweep_values("n=1..16")[1] == tuple(str(n) for n in range(1, 17))
    assert sweep_values("n=1..17")[1] == ("1", "2", "4", "8", "16", "17")
    assert sweep_values("n=0..32")[1] == ("0", "1", "2", "4", "8", "16", "32")
    assert sweep_values("n=5..5")[1] == ("5",)
    assert sweep_values("precision = fp32, fp16") == ("precision", ("fp32", "fp16"))
