"""Python code that asks where its tensors are is told what it would be told on a GPU; C++ goes on seeing a CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from oomproof.changes.torch.training import Training
from oomproof.errors import JobError
from oomproof.memory.timeline import Timeline
from oomproof.trace.torch.gpu.dialect import Dialect
from oomproof.trace.torch.loop import Pieces
from oomproof.trace.torch.trace_step import trace_step

MIB = 1 << 20


def traced(loss: Callable[[nn.Module, Any], Any], dialect: Dialect = "cuda", training: Any = None) -> Timeline:
    pieces = Pieces(lambda: nn.Linear(64, 64), lambda: torch.rand(256, 64), loss)
    return trace_step(pieces, training or Training(), dialect=dialect)


def asked(question: Callable[[nn.Module, torch.Tensor], Any], dialect: Dialect = "cuda", **training: Any) -> Any:
    """What code in a step is told."""
    answers = []

    def loss(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        answers.append(question(model, x))
        return model(x).sum()

    traced(loss, dialect, Training(**training))
    return answers[-1]


QUESTIONS: dict[str, tuple[Callable[[nn.Module, torch.Tensor], Any], Any, Any]] = {
    "is_cuda": (lambda m, x: x.is_cuda, True, False),
    "is_cpu": (lambda m, x: x.is_cpu, False, True),
    "device": (lambda m, x: str(x.device), "cuda:0", "cpu"),
    "get_device": (lambda m, x: x.get_device(), 0, -1),
    "type": (lambda m, x: x.type(), "torch.cuda.FloatTensor", "torch.FloatTensor"),
    "get_device as a function": (lambda m, x: torch.get_device(x), 0, -1),
    "made by a tensor type": (lambda m, x: torch.cuda.FloatTensor(2, 3).fill_(0).is_cuda, True, None),
    "made of data by one": (lambda m, x: torch.cuda.LongTensor([[1, 2]]).is_cuda, True, None),
    "of a size": (lambda m, x: tuple(torch.cuda.HalfTensor(x.size()).shape), (256, 64), None),
    "a kind of tensor": (lambda m, x: isinstance(x, torch.cuda.FloatTensor), True, False),
    "another kind": (lambda m, x: isinstance(x, torch.cuda.LongTensor), False, False),
    "cast by a tensor type": (lambda m, x: torch.arange(3).type(torch.cuda.FloatTensor).is_cuda, True, None),
    "cast by its name": (lambda m, x: torch.arange(3).type("torch.cuda.FloatTensor").is_cuda, True, None),
    "cast by another's name": (lambda m, x: torch.arange(3).type(x.type()).is_cuda, True, False),
    "cast as another": (lambda m, x: torch.arange(3).type_as(x).is_cuda, True, False),
    "cast to the host": (lambda m, x: x.type(torch.DoubleTensor).is_cuda, False, False),
    "cast to a dtype": (lambda m, x: x.type(torch.float64).is_cuda, True, False),
    "new": (lambda m, x: (x.new(2, 3).is_cuda, x.new([1.0]).is_cuda), (True, True), (False, False)),
    "new_tensor": (lambda m, x: x.new_tensor([1, 2]).is_cuda, True, False),
    "of a weight": (lambda m, x: m.weight.is_cuda, True, False),
    "of a result": (lambda m, x: m(x).relu().is_cuda, True, False),
    "of a view": (lambda m, x: x[3:].t().is_cuda, True, False),
    "of a new tensor": (lambda m, x: torch.zeros(3, device=x.device).is_cuda, True, False),
    "of data": (lambda m, x: torch.tensor([1, 2], device=x.device).is_cuda, True, False),
    "of what follows the batch": (lambda m, x: torch.ones(3).to(x).is_cuda, True, False),
    "of what names no device": (lambda m, x: torch.zeros(3).is_cuda, False, False),
    "of what is made of that": (lambda m, x: (torch.arange(3) * 2 + 1).is_cuda, False, False),
    "of data without a device": (lambda m, x: torch.tensor([1, 2]).is_cuda, False, False),
    "of that, moved": (lambda m, x: torch.tensor([1, 2]).to(x.device).is_cuda, True, False),
    "of that, beside a weight": (lambda m, x: (torch.ones(64) * m.weight).is_cuda, True, False),
    "of an optimizer's parameter": (lambda m, x: next(m.parameters()).device.type, "cuda", "cpu"),
    "of lengths": (
        lambda m, x: nn.utils.rnn.pack_padded_sequence(x[None], torch.tensor([256]), True).batch_sizes.is_cuda,
        False,
        False,
    ),
    "is there a GPU": (lambda m, x: torch.cuda.is_available(), True, False),
    "on the host": (lambda m, x: (x.cpu().is_cuda, (x.cpu() + 1)[2:].is_cuda), (False, False), (False, False)),
    "and back": (lambda m, x: (x.cpu() + 1).to("cuda").is_cuda, True, None),
    "beside a weight": (lambda m, x: (x.cpu()[0].cuda() + m.weight).is_cuda, True, None),
    "of its name": (lambda m, x: torch.cuda.get_device_name(0), "NVIDIA GPU", None),
    "of its generation": (lambda m, x: torch.cuda.get_device_properties(0).major, 8, None),
    "of its statistics": (lambda m, x: torch.cuda.memory_stats()["num_ooms"], 0, None),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_answers_are_those_of_a_gpu(name: str) -> None:
    question, on_gpu, on_cpu = QUESTIONS[name]
    assert asked(question) == on_gpu
    if on_cpu is not None:
        assert asked(question, "cpu") == on_cpu


def test_tensor_types_are_what_they_were_afterwards() -> None:
    before = torch.cuda.FloatTensor, torch.Tensor.type, torch.Tensor.type_as, torch.get_device
    asked(lambda m, x: torch.cuda.FloatTensor(3).is_cuda)
    assert before == (torch.cuda.FloatTensor, torch.Tensor.type, torch.Tensor.type_as, torch.get_device)


def test_a_gpu_may_be_the_default_before_the_job_is_traced() -> None:
    torch.set_default_device("cuda")
    try:
        assert asked(lambda m, x: (torch.tensor([1]).is_cuda, m.weight.is_cuda)) == (True, True)
        assert asked(lambda m, x: torch.tensor([1], device="cpu").is_cuda) is False
    finally:
        torch.set_default_device(None)


@pytest.mark.parametrize(
    "ask", [lambda: torch.cuda.mem_get_info()[0], lambda: torch.cuda.get_device_properties(0).total_memory]
)
def test_how_much_memory_it_has_is_not_known_and_told_so(ask: Callable[[], Any]) -> None:
    with pytest.raises(JobError, match=r"how much memory the GPU has .*test_said_device.py.*a parameter of the job"):
        asked(lambda m, x: ask())


def test_a_job_that_limits_itself_is_told_to_say_so() -> None:
    asked(lambda m, x: torch.cuda.set_per_process_memory_fraction(1.0, 0))
    with pytest.raises(JobError, match=r"lets itself have 50% of the GPU's memory .*--on"):
        asked(lambda m, x: torch.cuda.set_per_process_memory_fraction(0.5))


def test_cpp_goes_on_seeing_a_cpu() -> None:
    assert asked(lambda m, x: str(torch.ops.prim.device.default(x))) == "cpu"
    assert asked(lambda m, x: torch.Tensor.is_cuda.__get__(x)) is False


def test_a_gpus_branch_is_the_one_that_is_traced() -> None:
    def loss(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        kept = [model(x) for _ in range(3)] if x.is_cuda else [model(x)]
        return sum(each.exp().sum() for each in kept)  # type: ignore[return-value]

    assert len(traced(loss)) > len(traced(lambda model, x: model(x).exp().sum())) + 6


def test_what_is_brought_to_the_host_takes_nothing_of_the_gpu() -> None:
    kept: list[torch.Tensor] = []

    def loss(model: nn.Module, x: torch.Tensor, keep: Callable[[torch.Tensor], Any]) -> torch.Tensor:
        y = model(x)
        kept[:] = [keep(y.detach().repeat(64, 1)) for _ in range(2)]
        return y.sum()

    def peak(keep: Callable[[torch.Tensor], Any]) -> int:
        return traced(lambda model, x: loss(model, x, keep)).peak().bytes

    on_gpu, on_host = peak(lambda y: y * 2), peak(lambda y: y.cpu() * 2)
    assert on_gpu - on_host > 7 * MIB  # two of 4 MiB


def test_a_generator_and_streams_of_that_gpu_can_be_had() -> None:
    def loss(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        generator = torch.Generator(device=x.device).manual_seed(3)
        assert isinstance(generator, torch.Generator)
        noise = torch.rand(x.shape, generator=generator, device=x.device)
        with torch.cuda.stream(torch.cuda.Stream()), torch.cuda.device(x.device):
            x.record_stream(torch.cuda.current_stream())
            event = torch.cuda.Event()
            event.record()
            return model(x + noise).sum()

    assert len(traced(loss)) > 0


class Doubled(torch.autograd.Function):
    seen: Any = None

    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float16)
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        Doubled.seen = x.dtype, torch.is_autocast_enabled("cuda")
        return x * 2

    @staticmethod
    @torch.amp.custom_bwd(device_type="cuda")
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad * 2


def test_autograd_functions_for_gpus_cast_as_they_do_there() -> None:
    traced(lambda model, x: Doubled.apply(model(x).float()).sum(), training=Training(precision="fp16"))
    assert Doubled.seen == (torch.float16, False)  # custom_fwd turns autocast off inside


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd", "adafactor"])
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("checkpoint", ["none", "0"])
def test_loops_and_recomputing_work_as_before(precision: str, checkpoint: str, optimizer: str) -> None:
    pieces = Pieces(
        lambda: nn.Sequential(nn.Sequential(nn.Linear(64, 64), nn.Dropout()), nn.Linear(64, 8)),
        lambda: torch.rand(16, 64),
        lambda model, x: F.cross_entropy(model(x), torch.zeros(16, dtype=torch.int64, device=x.device)),
    )
    training = Training(precision=precision, checkpoint=checkpoint, ema=True, optimizer=optimizer)
    assert len(trace_step(pieces, training)) > 0


def test_afterwards_tensors_are_where_they_are() -> None:
    traced(lambda model, x: model(x).sum())
    assert not torch.rand(2).is_cuda
    assert torch.rand(2).device.type == "cpu"
    assert torch.Generator is type(torch.default_generator)


def test_where_a_gpus_way_cannot_be_traced_the_cpus_is_and_a_note_names_the_line() -> None:
    def loss(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        if x.is_cuda:
            x.data_ptr()  # as a kernel of the library's own does
            raise RuntimeError("no kernel image is available")
        return model(x).sum()

    notes = traced(loss).about.notes
    assert len(notes) == 1
    assert "test_said_device.py:" in notes[0]
    assert "the CPU's way is forecast" in notes[0]


def test_a_job_that_fails_either_way_is_told_as_it_failed_on_a_gpu() -> None:
    def loss(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        raise ValueError("on a GPU" if x.is_cuda else "on a CPU")

    with pytest.raises(JobError, match="on a GPU"):
        traced(loss)
