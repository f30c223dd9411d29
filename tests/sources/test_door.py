"""One door for jobs: sources say what they recognise, and other packages bring theirs."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import oomproof
from oomproof.sources import OURS, list_sources, open_job
from oomproof.sources.settings import resolve

MODULE = """
import oomproof
from oomproof.memory.timeline import Builder


class Toy(oomproof.Job):
    name = "toy:step"
    settings = (oomproof.Setting("images", 4, "images a step", role="batch"),)

    def trace(self, request):
        step = Builder()
        step.enter("forward")
        step.allocate(request.settings.images << 20, kind="activation", owner="net", op="conv")
        return step.build(about=oomproof.Timeline.__dataclass_fields__["about"].default_factory())


SOURCE = oomproof.Source(
    name="toys",
    forms=("toy:NAME",),
    about="steps of a toy framework",
    recognises=lambda text: text.startswith("toy:"),
    open=lambda opening: Toy(),
)
"""


@pytest.fixture(scope="module")
def other_package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package with a source of its own, built as a wheel and installed with pip into a folder."""
    folder = tmp_path_factory.mktemp("package")
    wheel, info = folder / "oomproof_toys-1.0-py3-none-any.whl", "oomproof_toys-1.0.dist-info"
    files = {
        "oomproof_toys.py": MODULE,
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: oomproof-toys\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: by hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "[oomproof.sources]\ntoys = oomproof_toys:SOURCE\n",
    }
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
        record = "".join(f"{name},,\n" for name in (*files, f"{info}/RECORD"))
        archive.writestr(f"{info}/RECORD", record)
    target = folder / "installed"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(target)]
    subprocess.run([*pip, str(wheel)], check=True, capture_output=True)
    return target


def asked(package: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    ours = str(Path(oomproof.__file__).parents[1])
    env = {**os.environ, "PYTHONPATH": os.pathsep.join((str(package), ours))}
    command = [sys.executable, "-m", "oomproof", *arguments]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def test_an_installed_package_adds_a_source(other_package: Path) -> None:
    done = asked(other_package, "check", "toy:step", "--on", "8GiB", "--batch", "7", "-q")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Verdict  fits 8.00 GiB")
    assert "images 7" in done.stdout, "--batch finds the setting that plays the batch"
    assert "toy:NAME" in asked(other_package, "check", "nothing:here", "--on", "8GiB").stderr
    assert "toy:NAME" in asked(other_package, "check", "--help").stdout
    assert "toy:NAME" not in asked(other_package / "none", "check", "--help").stdout


def test_a_package_that_cannot_be_loaded_is_named(other_package: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    subprocess.run(["cp", "-r", str(other_package), str(broken)], check=True)
    (broken / "oomproof_toys.py").write_text("import no_such_module")
    done = asked(broken, "check", "toy:step", "--on", "8GiB", "-q")
    assert done.returncode == 1
    assert "the source 'toys' (oomproof_toys:SOURCE) of another package cannot be loaded" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    (broken / "oomproof_toys.py").write_text("SOURCE = 7")
    assert "must be an oomproof.Source; it is a int" in asked(broken, "check", "toy:step", "--on", "8GiB").stderr


def test_every_source_of_ours_says_what_it_is() -> None:
    found = list(list_sources())[: len(OURS)]
    assert len({source.name for source in found}) == len(OURS)
    assert all(source.forms and source.about for source in found)


def test_looking_for_a_job_loads_no_framework() -> None:
    code = (
        "import sys; from oomproof.sources import list_sources; "
        "[source.recognises('nothing') for source in list_sources()]; "
        "print([name for name in ('numpy', 'torch', 'tensorflow', 'keras') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_what_is_not_a_job_is_told_what_would_be() -> None:
    with pytest.raises(oomproof.InputError) as failure:
        open_job("some thing")
    for form in ("torchvision:NAME", "FILE.py:FUNCTION", "keras:NAME", "FILE.timeline", "FILE.yaml"):
        assert form in str(failure.value)
    assert "'some thing' is not a job" in str(failure.value)


def test_a_name_of_detectron2s_zoo_needs_no_ending() -> None:
    short, long = (
        open_job(name) for name in ("faster_rcnn_R_50_FPN_1x", "COCO-Detection/faster_rcnn_R_50_FPN_1x.yaml")
    )
    assert [(each.name, each.default) for each in short.settings] == [(s.name, s.default) for s in long.settings]


def test_a_missing_file_is_missing(tmp_path: Path) -> None:
    for text in ("model.onnx", str(tmp_path / "nowhere")):
        with pytest.raises(oomproof.InputError, match="there is no file"):
            open_job(text)
    (tmp_path / "model.onnx").write_bytes(b"")
    with pytest.raises(oomproof.InputError, match="is not a job"):
        open_job(str(tmp_path / "model.onnx"))


def test_a_pipeline_config_is_a_job(tmp_path: Path) -> None:
    path = tmp_path / "pipeline.config"
    resizer = "image_resizer { fixed_shape_resizer { height: 300 width: 200 } }"
    path.write_text(f"model {{ ssd {{ num_classes: 3 {resizer} }} }}\ntrain_config {{ batch_size: 24 }}\n")
    assert resolve(open_job(str(path)), {"batch": 8})["batch_size"] == 8
    path.write_text("model { ssd { num_classes: 3 } }\ntrain_config { batchsize: 24 }\n")
    with pytest.raises(oomproof.InputError, match="batch_size"):
        open_job(str(path))
