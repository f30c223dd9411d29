"""What `oomproof measure --keep` keeps of a machine: written once asked for, shown, used on this machine, removed."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from oomproof.cli import main
from oomproof.errors import CannotDo, DamagedFile
from oomproof.memory.cards import this_machine
from oomproof.memory.cards.devices import find_device
from oomproof.memory.cards.kept_constants import Constants, constants_file, keep_constants, read_constants
from oomproof.memory.lasting import MIB, context
from oomproof.memory.make_forecast import build_forecast
from oomproof.memory.runtime import Runtime
from oomproof.memory.settings import Settings
from oomproof.memory.timeline import Builder
from oomproof.trace.torch.real_step import RealStep

MEASURED = Constants(411 * MIB, 17 * MIB, "torchvision:resnet18", "PyTorch 2.14, driver 560")


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    gpu = this_machine.Gpu("RTX 3060", 12 << 30, 0, (), (8, 6))
    monkeypatch.setattr(this_machine, "gpus", lambda: [gpu])


def test_forecasts_on_this_machine_use_what_was_measured(tmp_path: Path) -> None:
    before = context(find_device("this"))
    place = keep_constants("RTX 3060", MEASURED)
    assert place == tmp_path / "oomproof" / "gpus.json"
    after = context(find_device("this"))
    assert after.expected == 411 * MIB != before.expected
    assert after.low > before.low and after.high == before.high
    assert find_device("this").workspace == 17 * MIB
    assert find_device("RTX 3060").context == 0  # another person's card
    keep_constants("A100", MEASURED)
    assert set(read_constants()) == {"RTX 3060", "A100"}


@pytest.mark.parametrize("measured", [60, 411, 2000])
@pytest.mark.parametrize("workspace", [0, 17, 300])
def test_what_was_measured_never_lowers_an_upper_figure(measured: int, workspace: int) -> None:
    """A small job loads few kernels and may have no matrix product; the next one is not bound by that."""
    builder = Builder()
    builder.enter("forward")
    builder.allocate(100 * MIB, kind="activation", owner="net", op="relu")
    step = builder.build()

    def upper() -> tuple[int, int]:
        found = build_forecast(step, find_device("this"), Runtime(), "job", Settings())
        return found.on_device.high, found.reserved.high

    before = upper()
    keep_constants("RTX 3060", Constants(measured * MIB, workspace * MIB, "a small job", "PyTorch 2.14, driver 560"))
    after = upper()
    assert after[0] >= before[0] and after[1] >= before[1]
    assert (after[0] > before[0]) == (measured == 2000 or workspace == 300)


def test_a_measurement_is_kept_under_the_name_that_the_driver_says() -> None:
    from oomproof.api.measure import Measurement, keep_measurement

    forecast = SimpleNamespace(job="torchvision:resnet18")
    real = RealStep(1, 2, 3, {}, context=400 * MIB, workspace=16 * MIB)
    keep_measurement(Measurement(forecast, real, "NVIDIA GeForce RTX 3060"))  # type: ignore[arg-type]
    assert find_device("this").context == 400 * MIB
    for unknown in (RealStep(1, 2, 3, {}), RealStep(1, 2, 3, {}, context=-MIB, workspace=0)):
        with pytest.raises(CannotDo, match="does not tell"):
            keep_measurement(Measurement(forecast, unknown, "NVIDIA GeForce RTX 3060"))  # type: ignore[arg-type]


def test_it_is_shown_and_removed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["measure", "--kept"]) == 0
    assert "nothing is kept" in capsys.readouterr().out
    keep_constants("RTX 3060", MEASURED)
    assert main(["measure", "--kept"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "RTX 3060: context 411 MiB, library workspace 17.0 MiB (measured with torchvision:resnet18" in shown
    assert main(["measure", "--forget"]) == 0
    assert "removed" in capsys.readouterr().out and not constants_file().exists()
    assert main(["measure", "--forget"]) == 0
    assert "nothing was kept" in capsys.readouterr().out


@pytest.mark.parametrize(
    "content", ["", "[1]", "{", '{"RTX 3060": 3}', '{"RTX 3060": {"context": 1}}', '{"a": {"context": "x"}}']
)
def test_a_damaged_file_is_said(content: str, capsys: pytest.CaptureFixture[str]) -> None:
    constants_file().parent.mkdir()
    constants_file().write_text(content)
    with pytest.raises(DamagedFile, match="--forget"):
        find_device("this")
    assert main(["measure", "--forget"]) == 0


@pytest.mark.parametrize("size", [-1, 1 << 50, True, 0.5])
def test_sizes_that_cannot_be_are_refused(size: object) -> None:
    entry = {"context": size, "workspace": 0, "job": "", "versions": ""}
    constants_file().parent.mkdir()
    constants_file().write_text(json.dumps({"RTX 3060": entry}))
    with pytest.raises(DamagedFile):
        read_constants()


def test_without_a_gpu_there_is_nothing_to_keep(capsys: pytest.CaptureFixture[str]) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    assert main(["measure", "torchvision:resnet18", "--keep"]) == 1
    assert "PyTorch sees no GPU here" in capsys.readouterr().err
    assert main(["measure"]) == 1
    assert "JOB is missing" in capsys.readouterr().err
