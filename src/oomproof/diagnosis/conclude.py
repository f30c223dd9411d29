"""Ranked causes -> Diagnosis. Two that are about equally likely are both told, with what tells them apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from oomproof.diagnosis.diagnosis import Cause, Diagnosis

CLOSE = 0.06
"""confidences that differ by no more do not decide between two causes"""
DECIDED = 0.8
"""from here on, the log itself shows the cause: a frame, a number, a column"""
NO_RIVALS = ("unknown", "not_memory", "benign_warning")
_TELL_APART = {
    frozenset(("variable_shape", "leak")): "print {held} and images.shape after every step and "
    "run it again: a figure that climbs is a leak; a level one and then a larger shape than ever is the data",
    frozenset(("variable_shape", "batch_too_big")): "print {most} and images.shape after "
    "every step and run it again: if the last shape is larger than all before, it is the data, not the batch",
    frozenset(("checkpoint_on_gpu", "batch_too_big")): "run it once without resuming: if that fits, load with "
    "torch.load(path, map_location='cpu') and del the checkpoint; if not, it is the batch",
    frozenset(("other_process", "model_or_image_too_big")): "nvidia-smi before the next start: if the card is not "
    "empty, another process holds it; if it is, the model is too large",
    frozenset(
        ("batch_too_big", "model_or_image_too_big")
    ): "run one step with a batch of 1: if that fails too, it is the model or its images",
}
_TENSORFLOW = tuple(f"tf.config.experimental.get_memory_info('GPU:0')['{name}']" for name in ("current", "peak"))
_JAX = tuple(f"jax.local_devices()[0].memory_stats()['{name}']" for name in ("bytes_in_use", "peak_bytes_in_use"))
_FIGURES = {
    "tensorflow": _TENSORFLOW,
    "keras": _TENSORFLOW,
    "tfod": _TENSORFLOW,
    "matterport": _TENSORFLOW,
    "jax": _JAX,
    **dict.fromkeys(("darknet", "caffe", "caffe2", "dlib"), ("what nvidia-smi shows",) * 2),
}
"""what shows the memory in use, and the most so far; PyTorch's where nothing else is known"""


def conclude(causes: Sequence[Cause], facts: Mapping[str, Any]) -> Diagnosis:
    """The first cause's three lines, or those of the two that cannot be told apart."""
    first = causes[0]
    rival = _rival(causes)
    if rival is None:
        return Diagnosis(first.verdict, first.why, first.next, first.id, tuple(causes), facts)
    return Diagnosis(
        _both(first.verdict, rival.verdict),
        f"{_first_part(first.why)}; as likely ({rival.confidence:.2f} against {first.confidence:.2f}): "
        f"{_first_part(rival.why)}",
        _tell_apart(first, rival, facts.get("framework")),
        first.id,
        tuple(causes),
        facts,
        (rival.id,),
    )


def _tell_apart(first: Cause, rival: Cause, framework: str | None) -> str:
    known = _TELL_APART.get(frozenset((first.id, rival.id)))
    if known is None:
        if first.next and rival.next.startswith(first.next.split(" ; ")[0]):
            return first.next  # one cure for both
        # Nobody should halve a batch on a guess; one run tells.
        if rival.id == "batch_too_big":
            return f"{first.next} ; if that does not help: one step with a batch of 1 shows whether it is the batch"
        both = rival.next.split(" ; ")
        own = " ; ".join(part for part in first.next.split(" ; ") if part not in both) or first.next
        return f"{own} ; if that does not help: {rival.next}"
    held, most = _FIGURES.get(framework or "", ("torch.cuda.memory_allocated()", "torch.cuda.max_memory_allocated()"))
    return known.format(held=held, most=most)


def _rival(causes: Sequence[Cause]) -> Cause | None:
    if len(causes) < 2 or causes[0].confidence >= DECIDED:
        return None
    first, second = causes[:2]
    if first.id in NO_RIVALS or second.id in NO_RIVALS:
        return None
    return second if round(first.confidence - second.confidence, 2) <= CLOSE else None


def _both(first: str, second: str) -> str:
    memory, _, one = first.partition(": ")
    same, _, other = second.partition(": ")
    if memory == same:
        return f"{memory}: cannot tell which of two: {one}; or {other}"
    return f"cannot tell which of two: {first}; or {second}"


def _first_part(why: str) -> str:
    return why.split("; ", 1)[0]
