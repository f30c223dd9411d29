"""How many images a step has, where the log tells."""

from __future__ import annotations

from oomproof.diagnosis.causes import places
from oomproof.diagnosis.facts import Facts, Failure
from oomproof.diagnosis.patterns import Pattern

MOST = 256
LARGEST_KERNEL = 11
_PER_BOX = Pattern(r"SecondStage|[Rr][Oo][Ii]|[Cc]rop|[Bb]ox|[Pp]ropos|[Mm]ask_?[Hh]ead|Detection|\bmrcnn_")


def find_batch(facts: Facts) -> int | None:
    """What the set-up says, or the first side of an activation; a weight's or a box's is not the batch."""
    failure = facts.main
    if facts.setup.batch is not None:
        # A later run in the same log may have another.
        named = [batch for line, batch in facts.setup.batches if failure is None or line <= failure.line]
        return named[-1] if named else facts.setup.batch
    return failure.shape[0] if failure is not None and _begins_with_the_batch(failure) else None


def counts_boxes(failure: Failure) -> bool:
    """Whether the first side of the refused tensor counts boxes or crops, by the name of its operation."""
    if failure.family != "tensorflow" or len(failure.shape) != 4 or places.is_weight(failure):
        return False
    return failure.shape[0] > 1 and _PER_BOX.search(failure.op) is not None


def _begins_with_the_batch(failure: Failure) -> bool:
    shape = failure.shape
    if failure.family != "tensorflow" or len(shape) != 4 or MOST < shape[0] < places.WHOLE_SET:
        return False
    kernel = shape[0] == shape[1] <= LARGEST_KERNEL or shape[2] == shape[3] <= LARGEST_KERNEL
    return not kernel and not places.is_weight(failure) and not _PER_BOX.search(failure.op)
