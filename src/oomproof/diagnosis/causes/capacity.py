"""The plain case: the batch, the model or the image needs more than the card has; or only the largest batch does."""

from __future__ import annotations

from collections.abc import Iterator

from oomproof.diagnosis.amounts import number, text
from oomproof.diagnosis.causes import columns, moment, places
from oomproof.diagnosis.causes.batch import counts_boxes, find_batch
from oomproof.diagnosis.causes.moment import quote_line
from oomproof.diagnosis.diagnosis import Cause
from oomproof.diagnosis.facts import Facts, Failure
from oomproof.diagnosis.patterns import Pattern

FAMILIES = ("cuda", "tensorflow", "other", "xla", "handle", "mps")
_OF_A_TRAINING = Pattern(r"[Rr]esum|optimizer|epoch|iter")


def variable_shape(facts: Facts) -> Iterator[Cause]:
    """It fitted for long, nothing grew: the data brought a larger batch than before."""
    failure = facts.main
    if failure is None or failure.where != "device" or failure.family not in FAMILIES:
        return
    if failure.family == "handle" and failure.kind != "workspace":
        return  # a handle is made once, whatever the batch
    step = moment.late(facts, failure)
    hint = facts.setup.found.get("multiscale", "")
    padding = places.find_frame(failure, places.PADDING)
    trained = moment.find_steps_of_run(facts, failure)
    if step is None and not (hint and trained):
        return
    courses = columns.describe_courses(facts, failure, "device")
    if columns.find_leak(facts, failure, "device") is not None and not hint:
        return
    seen = [
        columns.describe_course(course) + (", which is too little to fill the card" if course.kind == "steady" else "")
        for course in courses
        if course.kind != "steady" or columns.is_too_little(course, failure)
    ][:2]
    confidence = 0.6 + (0.15 if hint else 0.0) + (0.08 if padding else 0.0) + (0.08 if seen else 0.0)
    shown = [part for part in (hint, f"frame {padding.place}" if padding else "", *seen) if part]
    refused = f": {text(failure.requested)} refused" if failure.requested is not None else ""
    said = moment.describe_moment(step or trained[-1])
    yield Cause(
        "variable_shape",
        min(0.83, confidence),
        f"device memory: it fitted until {said}, then a larger batch came{refused}",
        "the settings fit the usual batch and not the largest: image sizes, padding or boxes vary; "
        + ("; ".join(seen) if seen else "the log shows no memory figures that grow"),
        (quote_line(failure), *(f"line {each.line}: {each.text}" for each in [step] if each), *shown),
    )


def too_big(facts: Facts) -> Iterator[Cause]:
    failure = facts.main
    if (
        failure is None
        or failure.family not in (*FAMILIES, "cpu")
        or (failure.where != "device" and failure.family != "cpu")
    ):
        return
    if failure.family == "handle" and failure.kind != "workspace":
        return
    batch = find_batch(facts)
    single = batch == 1
    whole = len(failure.shape) == 4 and failure.shape[0] >= places.WHOLE_SET
    start = _at_start(failure, resumed=_has_resumed(facts, failure))
    base = 0.5 if failure.family == "cuda" else 0.46
    if failure.requested is None and failure.family != "handle":
        base = 0.4 if facts.setup.batch is None else 0.46
    if moment.first_step(facts, failure) and facts.progress:
        base += 0.08
    elif moment.late(facts, failure) is not None and not whole:
        base -= 0.08  # the settings as such had fitted
    if failure.family in ("xla", "mps", "cpu") and (failure.family, failure.kind) != ("xla", "buffer"):
        base = 0.35
    if whole:
        base += 0.25
    memory, card = ("device", "card") if failure.where == "device" else ("host", "machine")
    sums = _sum(failure)
    evidence = (quote_line(failure), *([sums] if sums else []))
    request = text(failure.requested) if failure.requested is not None else ""
    again = f"; the same {request} were refused {facts.again} times" if facts.again > 1 else ""
    size = f" of {number(failure.total)} GiB" if failure.total else ""
    known = f"batch {batch}" if batch else "this batch"
    parts = (
        f"{text(failure.allocated)}{size} in use by its own tensors" if failure.allocated is not None else "",
        f"{request}{' more' if failure.allocated is not None else ''} refused" if request else "",
    )
    full = ": ".join(("", ", ".join(part for part in parts if part))) if any(parts) else ""
    big = (
        f"; one tensor {list(failure.shape)} is {text(failure.requested)}"
        + (f", of {failure.shape[0]} boxes or crops, not images" if counts_boxes(failure) else "")
        if failure.shape and failure.requested
        else ""
    )
    reason_without_sums = (
        f"the training's own tensors fill the {card}"
        if full
        else f"the message has no figures; that the training's own tensors fill the {card} is the usual reason"
    )
    yield Cause(
        "batch_too_big",
        0.15 if single else base - 0.12 if start else base + (0.1 if batch else 0.04),
        f"{memory} memory{'' if full else ', most likely'}: {known} does not fit{full}",
        (sums or reason_without_sums) + big + again,
        evidence,
    )
    reason = (
        "even one image a step does not fit"
        if single
        else start or f"the model or its images may be too large for this {card} at any batch"
    )
    yield Cause(
        "model_or_image_too_big",
        base + 0.25 if single or start else base - 0.06,
        f"{memory} memory: the model or its images are too large for the {card}{full}",
        f"{reason}; {sums}" if sums else reason + big,
        evidence,
        _without_activations(failure) if start and failure.kind != "search" else "",
    )


def _without_activations(failure: Failure) -> str:
    """Where weights or optimizer state alone are too much, neither smaller images nor autocast help."""
    if failure.family != "cuda":
        return "a smaller model or feature extractor, or an optimizer with fewer states (SGD, not Adam)"
    if places.find_frame_outside_steps(failure, places.OPTIMIZER) is not None:
        return "SGD instead of Adam, bitsandbytes.optim.AdamW8bit, a smaller model, or FSDP over several cards"
    return "model.to(torch.bfloat16) before it goes to the GPU, a smaller model, or FSDP over several cards"


def _has_resumed(facts: Facts, failure: Failure) -> bool:
    """Whether the run goes on with a checkpoint of a training: then weights and optimizer state had fitted."""
    return any(step.doing == "resume" and _OF_A_TRAINING.search(step.text) for step in facts.before(failure))


def _at_start(failure: Failure, *, resumed: bool) -> str:
    """Whether weights or optimizer state already do not fit."""
    inner = failure.frames[-6:]
    if failure.kind == "search":
        return "a search for the batch size went down to nothing: not even one image fits"
    if places.is_weight(failure):
        return f"the tensor that was refused is a weight, its gradient or its optimizer state, {failure.op}"
    if any(frame.name in ("_apply", "convert", "cuda", "to") and "module.py" in frame.file for frame in inner):
        return f"not even the weights fit: it failed in {places.own(failure)} while the model moved to the GPU"
    frame = places.find_frame_outside_steps(failure, places.OPTIMIZER)
    if (
        frame is not None
        and not resumed
        and not any("backward" in each.name for each in inner)
        and any("step" in each.name or "_init_group" in each.name for each in inner)
    ):
        return f"the optimizer's state does not fit beside the weights: it failed in {frame.place}"
    return ""


def _sum(failure: Failure) -> str:
    parts = []
    if failure.total is not None and failure.free is not None:
        parts.append(f"total {number(failure.total)}, free {number(failure.free)}")
    if failure.limit is not None and failure.family == "tensorflow":
        parts.append(f"pool {number(failure.limit)}")
    if failure.allocated is not None:
        parts.append(f"allocated {number(failure.allocated)}")
    if failure.reserved is not None and failure.idle is not None:
        parts.append(f"idle in the allocator {number(failure.idle)}")
    if not parts:
        return ""
    asked = f"; {text(failure.requested)} asked for" if failure.requested is not None else ""
    note = ""
    if failure.idle is not None and failure.requested is not None and failure.idle < failure.requested:
        note = ": the idle part could not have served it, so this is not fragmentation"
    return f"{', '.join(parts)} GiB{asked}{note}"
