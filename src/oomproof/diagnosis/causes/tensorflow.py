"""Causes that only TensorFlow has: a pool as large as the card, two jobs on it, graphs traced again and again."""

from __future__ import annotations

from collections.abc import Iterator

from oomproof.diagnosis.amounts import text
from oomproof.diagnosis.causes import places
from oomproof.diagnosis.causes.moment import quote_line
from oomproof.diagnosis.causes.outside import BATCH_BY_BATCH
from oomproof.diagnosis.diagnosis import Cause
from oomproof.diagnosis.facts import Facts

FRAMEWORKS = ("keras", "tensorflow", "tfod", "matterport")
"""what runs on TensorFlow"""


def greedy_allocation(facts: Facts) -> Iterator[Cause]:
    failure = facts.main
    if failure is None or failure.where != "device":
        return
    handle = failure.family == "handle" and (
        (failure.op == "tensorflow" and facts.setup.framework != "jax") or facts.setup.framework in FRAMEWORKS
    )
    refused = [each for each in facts.failures if (each.family, each.kind) == ("tensorflow", "driver")]
    pool, card = facts.setup.pool, facts.setup.card
    if not handle and not (refused and failure.kind in ("driver", "copy")):
        return
    parts, evidence = [], [quote_line(failure)]
    if pool:
        parts.append(f"TensorFlow took {text(pool)}" + (f" of {text(card)}" if card else "") + " at its start")
    if refused:
        first, last = refused[0].requested, refused[-1].requested
        tries = f"the driver refused {len(refused)} time{'s' if len(refused) > 1 else ''}"
        parts.append(
            f"{tries}, from {text(first or 0)} down to {text(last or 0)}"
            if len(refused) > 1
            else f"{tries} ({text(first or 0)})"
        )
        evidence += [quote_line(each) for each in refused[:3] if each is not failure]
    sure = bool(pool and card and pool > 0.8 * card) or bool(refused) or bool(pool)
    yield Cause(
        "tf_greedy_allocation",
        0.84 if sure else 0.58,
        "device memory: TensorFlow takes nearly the whole card for its pool, and what works beside the pool finds none",
        "; ".join(parts) or "cuDNN and cuBLAS allocate beside TensorFlow's pool, which by default takes all it can get",
        tuple(evidence),
    )


def train_and_eval_together(facts: Facts) -> Iterator[Cause]:
    failure = facts.main
    job = facts.setup.found.get("eval_job", "")
    if failure is None or failure.where != "device" or not job:
        return
    if facts.setup.framework not in FRAMEWORKS and failure.family not in ("tensorflow", "handle"):
        return
    taken = (
        facts.setup.free_at_start is not None
        and facts.setup.card
        and facts.setup.free_at_start < 0.3 * facts.setup.card
    )
    yield Cause(
        "train_and_eval_together",
        0.93 if taken or failure.kind in ("driver", "tensorflow", "copy") else 0.86,
        "device memory: an evaluation job runs beside the training on one GPU",
        "both take the whole card for their pools; the log shows an evaluation that waits for checkpoints",
        (quote_line(failure), job),
    )


def find_whole_array(facts: Facts) -> Iterator[Cause]:
    """What fit() is given as one array becomes one tensor on the GPU."""
    failure = facts.main
    if failure is None or failure.where != "device" or failure.kind == "copy" or not places.copies_an_array(failure):
        return
    if failure.requested is None:
        return
    yield Cause(
        "host_whole_dataset",
        0.84,
        f"device memory: an array of {text(failure.requested)} goes to the GPU as a whole",
        f"{places.own(failure) or 'the program'} makes one tensor of it; what fit() is given as an array is copied "
        "before it is cut into batches",
        (quote_line(failure),),
        BATCH_BY_BATCH,
    )


def find_retracing(facts: Facts) -> Iterator[Cause]:
    warnings = facts.notes.get("retracing", ())
    failure = facts.main
    if not warnings or failure is None:
        return
    yield Cause(
        "retracing",
        0.86 if len(warnings) > 1 else 0.74,
        f"{'host' if failure.where != 'device' else 'device'} memory: the step is traced "
        "anew for every shape, and each graph stays",
        f"{len(warnings)} retracing warning{'s' if len(warnings) > 1 else ''} before the end; every "
        "new shape or Python argument makes a graph that is never freed",
        (*warnings[:3], quote_line(failure)),
    )
