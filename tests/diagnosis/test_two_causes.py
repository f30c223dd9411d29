"""Where a log does not decide, both causes are told; and a batch is advised only where it is the batch."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

import oomproof
from oomproof.diagnosis.conclude import CLOSE, DECIDED, conclude
from oomproof.diagnosis.diagnosis import Cause
from oomproof.report.explain import document, report

CORPUS = Path(__file__).parent / "corpus"
LOGS = sorted(CORPUS.rglob("*.log"))
SMALL = (
    "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 10.76 GiB total capacity; 9.90 GiB already "
    "allocated; 12.00 MiB free; 9.91 GiB reserved in total by PyTorch)"
)


def cause(name: str, confidence: float) -> Cause:
    return Cause(name, confidence, f"device memory: {name} it is", f"because of {name}; and more", (), f"mend {name}")


def test_two_of_about_the_same_confidence() -> None:
    found = conclude([cause("variable_shape", 0.6), cause("batch_too_big", 0.56), cause("leak", 0.3)], {})
    assert found.cause == "variable_shape"
    assert found.alternatives == ("batch_too_big",)
    assert found.verdict == ("device memory: cannot tell which of two: variable_shape it is; or batch_too_big it is")
    assert "0.56 against 0.60" in found.why
    assert "run it again" in found.next, "the next step tells them apart"


@pytest.mark.parametrize(
    ("first", "second"),
    [(0.6, 0.6 - CLOSE - 0.02), (DECIDED, DECIDED - 0.01)],
    ids=["far apart", "shown by the log itself"],
)
def test_the_first_stands_alone(first: float, second: float) -> None:
    found = conclude([cause("variable_shape", first), cause("batch_too_big", second)], {})
    assert found.alternatives == () and found.verdict == "device memory: variable_shape it is"


def test_unknown_is_not_a_second_cause() -> None:
    assert conclude([cause("batch_too_big", 0.56), cause("unknown", 0.5)], {}).alternatives == ()


def test_a_late_end_without_memory_figures_may_be_either() -> None:
    found = oomproof.explain([*(f"step {n * 100} loss 0.4" for n in range(9)), SMALL])
    assert (found.cause, found.alternatives) == ("variable_shape", ("leak",))
    assert document(found)["alternatives"] == ["leak"]
    screen = StringIO()
    Console(file=screen, width=100).print(report(found))
    assert "cannot tell which of two" in screen.getvalue()
    assert "variable_shape or leak" in screen.getvalue()


def test_with_figures_it_is_decided() -> None:
    level = [f"step {n * 100} loss 0.4 gpu_mem 9.{n % 2}GB" for n in range(12)]
    assert oomproof.explain([*level, SMALL]).alternatives == ()


def test_a_step_that_tells_two_apart_is_of_the_log_s_framework() -> None:
    found = oomproof.explain(CORPUS / "variable_shape" / "tf1_47k_steps.log")
    assert found.alternatives == ("leak",)
    assert "torch" not in found.next and "get_memory_info" in found.next


def test_half_of_an_unknown_batch_is_advised_only_for_the_batch() -> None:
    wrong = [
        (log.parent.name, log.stem, found.next)
        for log in LOGS
        if "N/2" in (found := oomproof.explain(log)).next and found.cause != "batch_too_big"
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("shape", "op", "batch"),
    [
        ("16,128,256,256", "model/conv2d/Conv2D", 16),
        ("100,14,14,1024", "SecondStageFeatureExtractor/Relu", None),
        ("3,3,512,512", "gradients/conv/Conv2D_grad/Conv2DBackpropFilter", None),
        ("512,512,3,3", "Adam/update", None),
    ],
)
def test_the_first_side_of_a_tensor_is_the_batch_only_for_activations(shape: str, op: str, batch: int | None) -> None:
    log = (
        f"ResourceExhaustedError: OOM when allocating tensor with shape[{shape}] and type float on "
        f"/job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc\n\t [[{{{{node {op}}}}}]]\n"
    )
    found = oomproof.explain(log)
    told = " ".join((found.verdict, found.next, *(each.verdict for each in found.causes)))
    assert (f"batch {batch}" in told) == (batch is not None)
    if batch is None:
        assert f"batch {shape.split(',', maxsplit=1)[0]}" not in told


def test_a_step_that_both_cures_have_is_said_once() -> None:
    fit = "oomproof fit JOB --on 11GiB"
    causes = (
        Cause("masked_oom", 0.7, "device memory: a", "why", (), f"nvidia-smi ; {fit}"),
        Cause("variable_shape", 0.68, "device memory: b", "why", (), f"smaller images ; {fit}"),
    )
    assert conclude(causes, {}).next == f"nvidia-smi ; if that does not help: smaller images ; {fit}"


TRAINER = "site-packages/transformers/trainer.py"


def test_a_training_that_may_resume_is_no_loading() -> None:
    found = oomproof.explain(
        [
            "{'loss': 0.41, 'epoch': 3.0}",
            "Traceback (most recent call last):",
            '  File "run_object_detection.py", line 494, in main',
            "    train_result = trainer.train(resume_from_checkpoint=checkpoint)",
            f'  File "{TRAINER}", line 3667, in evaluation_loop',
            "    preds_host = nested_concat(preds_host, logits, padding_index=-100)",
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 8.08 GiB.",
        ]
    )
    assert found.cause == "eval_postprocess"
    assert "checkpoint_on_gpu" not in {cause.id for cause in found.causes}
