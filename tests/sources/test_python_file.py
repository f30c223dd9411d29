"""Jobs in the user's own files: settings from the signature, and what is said when a file is wrong."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import oomproof
from oomproof.errors import InputError, JobError, OomproofError, Unanswerable
from oomproof.memory.timeline import Timeline
from oomproof.sources import open_job
from oomproof.sources.settings import resolve
from oomproof.trace.request import TraceRequest

JOB = """
import torch
from oomproof import TorchJob

def helper():
    return None

def job(batch=4, width=8, lr=0.5, size=(6, 6), deep=False, name="net", extra=None):
    return TorchJob(
        model=lambda: torch.nn.Linear(width, width),
        batch=lambda: torch.rand(batch, width),
        loss=lambda net, x: net(x).square().mean(),
        optimizer=lambda p: torch.optim.SGD(p, lr=lr),
        defaults={"zero_grad": "keep"},
    )
"""
Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(text: str, function: str = "job", name: str = "train.py") -> str:
        (tmp_path / name).write_text(textwrap.dedent(text))
        return f"{tmp_path / name}:{function}"

    return write


def traced(text: str, **given: Any) -> Timeline:
    job = open_job(text)
    return job.trace(TraceRequest(resolve(job, given)))


def refused(text: str, *said: str, kind: type[OomproofError] = InputError, **given: Any) -> None:
    with pytest.raises(kind) as raised:
        traced(text, **given)
    message = str(raised.value)
    assert "\n" not in message
    for part in said:
        assert part in message


def test_settings_are_the_signature(write: Write) -> None:
    job = open_job(write(JOB))
    assert job.name == "train.py:job"
    own = {setting.name: setting.default for setting in job.settings[:7]}
    assert own == {"batch": 4, "width": 8, "lr": 0.5, "size": (6, 6), "deep": False, "name": "net", "extra": None}
    assert resolve(job, {})["zero_grad"] == "keep"  # the job's own default
    assert resolve(job, {})["precision"] == "fp32"


def test_texts_are_read_as_the_defaults_type(write: Write) -> None:
    given = {"batch": "16", "lr": "1e-3", "size": "3x5", "deep": "yes", "name": "7", "extra": "[1, 'a']"}
    read = resolve(open_job(write(JOB)), given)
    assert [read[name] for name in given] == [16, 0.001, (3, 5), True, "7", [1, "a"]]


def test_settings_reach_the_job(write: Write) -> None:
    timeline = traced(write(JOB), width="64", batch=32)
    assert timeline.by_kind(timeline.ticks - 1)["parameter"] == 4 * 64 * 65
    assert timeline.by_kind(timeline.ticks - 1)["input"] == 4 * 32 * 64
    assert timeline.about.job == "train.py:job"
    assert timeline.about.settings["width"] == 64


def test_parameters_hide_training_settings_of_the_same_name(write: Write) -> None:
    text = JOB.replace("extra=None", "precision='own'")
    assert [s.default for s in open_job(write(text)).settings if s.name == "precision"] == ["own"]


@pytest.mark.parametrize("parameter", ["batch", "*sizes", "**more"])
def test_parameters_without_defaults(write: Write, parameter: str) -> None:
    refused(
        write(f"def job({parameter}): pass"), f"'{parameter.strip('*')}' has none", "every parameter needs a default"
    )


def test_missing_function_names_near_ones(write: Write) -> None:
    refused(write(JOB, "jobs"), "has no function 'jobs'", "it has job")
    refused(write("X = 1", "job"), "(it has no functions)")
    refused(write("job = 3"), "has no function 'job'")


def test_no_function_said(write: Write) -> None:
    refused(write(JOB).removesuffix(":job"), "which function", "train.py:FUNCTION", "-- python")
    refused(write("x = 1\nx = (").removesuffix(":job"), "train.py:2: this is no Python that can be read")
    refused(write("!pip install x\nx = (").removesuffix(":job"), "train.py:2: this is no Python that can be read")


def test_no_file_where_no_function_is_said(tmp_path: Path) -> None:
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "link.py").symlink_to("nowhere")
    refused(str(tmp_path / "folder.py"), "folder.py is not a file")
    refused(str(tmp_path / "link.py"), "there is no file", "-- python FILE.py")
    refused(str(tmp_path / "none.py"), "there is no file")


def test_missing_file(tmp_path: Path) -> None:
    refused(f"{tmp_path}/nowhere.py:job", "there is no file", "nowhere.py")
    refused("whatever", "'whatever' is not a job")


def test_their_line_when_a_file_raises(write: Write) -> None:
    refused(write("import math\n\nmath.sqrt(-1)\n"), "ValueError", "train.py:3: math.sqrt(-1)", kind=JobError)
    refused(
        write("import nonsense_module\n"), "ModuleNotFoundError", "train.py:1: import nonsense_module", kind=JobError
    )
    refused(write("import sys\nsys.exit(3)\n"), "SystemExit: 3", "train.py:2", kind=JobError)


def test_syntax_errors(write: Write) -> None:
    refused(write("x = 1\ndef job(:\n    pass\n"), "SyntaxError", "train.py:2: def job(:", kind=JobError)


def test_their_line_when_the_function_raises(write: Write) -> None:
    refused(
        write("def job():\n    return {}['size']\n"), "KeyError: 'size'", "train.py:2: return {}['size']", kind=JobError
    )


@pytest.mark.parametrize(("returned", "kind"), [("None", "NoneType"), ("{'model': 1}", "dict")])
def test_functions_that_return_something_else(write: Write, returned: str, kind: str) -> None:
    refused(write(f"def job():\n    return {returned}\n"), "must return an oomproof.TorchJob", kind, kind=JobError)


@pytest.mark.parametrize(
    ("pieces", "said"),
    [
        ("model=1, batch=int, loss=len", "TorchJob(model=...) must be a function"),
        ("model=torch.nn.Linear(1, 1), batch=int, loss=len", "it is of type Linear. Wrap it: model=lambda: ..."),
        ("model=int, batch=int, loss=len, optimizer=1", "Wrap it: optimizer=lambda parameters: ..."),
        ("model=int, batch=int", "either a loss(model, batch) or a whole step"),
        ("model=int, batch=int, loss=len, step=len", "either a loss(model, batch) or a whole step"),
    ],
)
def test_pieces_that_do_not_fit(write: Write, pieces: str, said: str) -> None:
    text = write(f"import torch\nfrom oomproof import TorchJob\n\ndef job():\n    return TorchJob({pieces})\n")
    refused(text, said)


def test_a_whole_step_refuses_what_would_change_it(write: Write) -> None:
    text = write(
        JOB.replace("loss=lambda net, x: net(x).square().mean()", "step=lambda net, x, o: net(x).sum().backward()")
    )
    refused(text, "no setting 'precision'", precision="fp16")
    assert traced(text, channels_last=True).peak().bytes


def test_neighbours_can_be_imported(write: Write) -> None:
    write("WIDTH = 24\n", name="neighbour_of_train.py")
    text = write("from neighbour_of_train import WIDTH\n" + JOB.replace("width=8", "width=WIDTH"))
    assert resolve(open_job(text), {})["width"] == 24


def test_operations_that_only_a_gpu_could_answer(write: Write) -> None:
    """An operation without a fake form and without a CPU kernel."""
    library = torch.library.Library("oomproof_test", "DEF")
    library.define("only_on_cuda(Tensor x) -> Tensor")
    try:
        text = write(JOB.replace("net(x).square()", "torch.ops.oomproof_test.only_on_cuda(net(x))"))
        refused(text, "operation 'only_on_cuda'", "cannot be computed here", "move that code out", kind=Unanswerable)
    finally:
        library._destroy()


def test_a_file_that_nobody_wrote_is_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "job.py"
    path.write_bytes(b"a" * (5 << 20))
    with pytest.raises(InputError, match=r"cannot read .*job.py: larger than 4 MiB; expected a Python file"):
        open_job(f"{path}:job")


@pytest.mark.parametrize("place", ["job", "model", "step"])
def test_what_the_code_sets_for_the_whole_process_is_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)
    (tmp_path / "fast.py").write_text(
        textwrap.dedent(f"""
        import torch
        from torch import nn
        from oomproof import TorchJob

        def fasten(place):
            torch.backends.cudnn.benchmark |= place == {place!r}

        def model():
            fasten("model")
            return nn.Sequential(nn.Conv2d(3, 32, 7), nn.Conv2d(32, 32, 5))

        def loss(model, x):
            fasten("step")
            return model(x).mean()

        def job(batch=4):
            fasten("job")
            return TorchJob(model=model, batch=lambda: torch.rand(batch, 3, 128, 128), loss=loss)
        """)
    )
    name = f"{tmp_path}/fast.py:job"
    [(_, swept)] = oomproof.sweep(name, "8GiB", "batch", [4]).rows
    found, plain = oomproof.check(name, "8GiB"), oomproof.check(name, "8GiB", cudnn_benchmark=False)
    assert found.settings["cudnn_benchmark"] is True
    assert swept.on_device.high == found.on_device.high > plain.on_device.high
