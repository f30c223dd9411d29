"""Memory that the framework's allocator does not manage: other processes, caps, workspaces, handles."""

from __future__ import annotations

from collections.abc import Iterator

from oomproof.diagnosis.amounts import number, text
from oomproof.diagnosis.causes import moment, places
from oomproof.diagnosis.causes.moment import quote_line
from oomproof.diagnosis.diagnosis import Cause
from oomproof.diagnosis.facts import Facts, Failure
from oomproof.diagnosis.patterns import Pattern

CONTEXT = 600 << 20
"""what this process itself may hold beside the allocator: CUDA context, cuDNN and cuBLAS"""
WORTH_SAYING = 3 << 29
BATCH_BY_BATCH = (
    "give it batch by batch: tf.data.Dataset.from_generator or a keras.utils.PyDataset; or make the dataset with "
    "tf.device('/CPU:0')"
)
SHARE = 0.08
FULL = 0.6
"""of a card: in use before the start, it leaves too little for most trainings"""


def outside(failure: Failure) -> tuple[int, str] | None:
    """(bytes that others hold on the device, the sum that shows it)."""
    total, free = failure.total, failure.free
    listed = sum(size for _, size in failure.others)
    if total is None or free is None:
        return (listed, _list_processes(failure)) if listed else None
    if failure.process is not None:
        rest = total - free - failure.process
        if listed >= rest - CONTEXT:
            return (listed, _list_processes(failure)) if listed else None
        return (
            rest,
            f"total {number(total)} - free {number(free)} - this process "
            f"{number(failure.process)} = {number(rest)} GiB outside it",
        )
    if failure.reserved is None:
        return (listed, _list_processes(failure)) if listed else None
    rest = total - free - failure.reserved
    return (
        rest,
        f"total {number(total)} - free {number(free)} - reserved by this process "
        f"{number(failure.reserved)} = {number(rest)} GiB outside it",
    )


def _list_processes(failure: Failure) -> str:
    largest = sorted(failure.others, key=lambda each: -each[1])[:4]
    shown = ", ".join(f"process {pid} holds {text(size)}" for pid, size in largest)
    if len(failure.others) == 1:
        return shown
    more = f" and {len(failure.others) - 4} more" if len(failure.others) > 4 else ""
    return f"{shown}{more}: {text(sum(size for _, size in failure.others))} in all"


def other_process(facts: Facts) -> Iterator[Cause]:
    failure = facts.main
    if failure is None or failure.where != "device":
        return
    held = outside(failure)
    if held is not None and failure.family == "cuda":
        yield from _in_the_message(facts, failure, *held)
    card, free = facts.setup.card, facts.setup.free_at_start
    if card and free is not None and card - free > max(WORTH_SAYING, card * 0.2):
        gone = card - free
        yield Cause(
            "other_process",
            0.9 if free < card * 0.5 else 0.6,
            f"device memory: another process held {text(gone)} of {text(card)} before this one began",
            f"TensorFlow found {text(free)} free of {text(card)} at its start: {number(card)} - "
            f"{number(free)} = {number(gone)} GiB were taken",
            (quote_line(failure),),
        )
    yield from _in_a_table(facts, failure)
    pool = facts.setup.pool if failure.family == "tensorflow" else None
    if pool and card and pool < 0.5 * card and free is None and "cap" not in facts.setup.found:
        yield Cause(
            "other_process",
            0.64,
            f"device memory: TensorFlow got only {text(pool)} of {text(card)}: another process held the rest",
            f"it takes what is free at its start, and that was {pool / card:.0%} of the card",
            (quote_line(failure),),
        )
    small = failure.process if failure.family == "xla" else None
    if failure.family == "xla" and small is not None and small < 1 << 30 and (failure.requested or 0) < 1 << 30:
        yield Cause(
            "other_process",
            0.75,
            "device memory: the card is held by another process (or by an earlier session of this notebook)",
            f"the whole program needs only {text(small)}, and {text(failure.requested or 0)} were refused",
            (quote_line(failure),),
        )


def _in_a_table(facts: Facts, failure: Failure) -> Iterator[Cause]:
    """nvidia-smi, called before the start, shows every card full: then it was not this run that filled it."""
    if failure.total is not None and failure.free is not None:
        return  # the message itself tells who holds what, at the moment that counts
    begun = [step.line for step in facts.progress if step.doing in ("train", "eval")]
    before = [each for each in facts.setup.in_use if each[0] < min([failure.line, *begun])]
    if not before or any(used < FULL * size for _, used, size in before):
        return
    line, used, size = before[-1]
    yield Cause(
        "other_process",
        0.9,
        f"device memory: another process held {text(used)} of {text(size)} before this one began",
        f"nvidia-smi's table before the start (line {line}): {number(size)} - {number(used)} = "
        f"{number(size - used)} GiB were left",
        (quote_line(failure),),
    )


def _in_the_message(facts: Facts, failure: Failure, held: int, arithmetic: str) -> Iterator[Cause]:
    total = failure.total or 0
    if held < 256 << 20:
        return
    request, free = failure.requested or 0, failure.free or 0
    own_context = 0 if failure.process is not None or failure.others else CONTEXT
    fits = request <= free + max(0, held - own_context)
    notable = held > max(WORTH_SAYING, total * SHARE)
    ranks = _same_size(failure)
    if notable and fits:
        confidence = 0.62 + 0.35 * min(1.0, 2 * held / max(total, 1))
    elif notable:
        confidence = 0.4
    else:
        confidence = 0.25 if fits and held > own_context + (256 << 20) else 0.1
    would = (
        f"the {text(request)} request would have fitted"
        if fits and request
        else f"even without it {text(request)} would not fit"
    )
    evidence = (quote_line(failure), arithmetic)
    if ranks:
        sentence = (
            f"device memory: {ranks} other processes of about {text(held // ranks)} each "
            f"sit on {failure.device or 'this card'}: "
            "probably your own ranks or workers"
        )
        yield Cause("other_process", confidence, sentence, f"{arithmetic}; {would}", evidence)
        return
    verdict = (
        f"device memory: another process holds {number(held)} of {number(total)} GiB"
        if total
        else f"device memory: another process holds {text(held)}"
    )
    yield Cause("other_process", confidence, verdict, f"{arithmetic}; {would}", evidence)


def _same_size(failure: Failure) -> int:
    sizes = sorted(size for _, size in failure.others)
    return len(sizes) if len(sizes) >= 3 and sizes[-1] <= sizes[0] * 1.25 + (32 << 20) else 0


def memory_cap(facts: Facts) -> Iterator[Cause]:
    """A limit that the program set itself, well below the card."""
    failure = facts.main
    if failure is None or failure.where != "device" or failure.family == "mps":
        return
    limit = failure.limit if failure.limit is not None else facts.setup.pool if failure.family == "tensorflow" else None
    card = failure.total or facts.setup.card
    said = facts.setup.found.get("cap", "")
    if failure.family == "cuda" and limit is not None:
        yield Cause(
            "tf_memory_cap",
            0.9,
            f"device memory: the program's own cap was reached, {text(limit)}",
            "set_per_process_memory_fraction is in force"
            + (f": {text(limit)} of {text(card)} allowed" if card else ""),
            (quote_line(failure), *([said] if said else [])),
        )
        return
    if failure.family not in ("tensorflow", "xla"):
        return
    if limit and card and limit < 0.7 * card:
        share = limit / card
        # People cap at round shares or round sizes; what others happen to leave is neither.
        exact = abs(share * 20 - round(share * 20)) < 0.1 or (limit >> 20) % 256 == 0
        request = failure.requested or 0
        yield Cause(
            "tf_memory_cap",
            0.88 if said else 0.72 if exact else 0.5,
            f"device memory: TensorFlow may use only {text(limit)} of the card's {text(card)}",
            f"the pool's limit is {share:.0%} of the card; {text(request)} were refused"
            + ("" if said else "; a cap in the program, or memory that was taken at its start"),
            (quote_line(failure), *([said] if said else [])),
        )
    elif said and limit:
        yield Cause(
            "tf_memory_cap",
            0.75,
            f"device memory: a cap of {text(limit)} is set in the program",
            f"the pool was limited to {text(limit)}, and {text(failure.requested or 0)} were refused",
            (quote_line(failure), said),
        )


_LIBRARIES = (
    ("dnn", "cuDNN"),
    ("convolution", "cuDNN"),
    ("cusolver", "cuSOLVER"),
    ("cusparse", "cuSPARSE"),
    ("cufft", "cuFFT"),
    ("rocblas", "rocBLAS"),
    ("hipblas", "hipBLAS"),
    ("cuda failure", "NCCL"),
)
"""what a message has in it, and the library that it is about"""


def _name_library(message: str) -> str:
    return next((name for sign, name in _LIBRARIES if sign in message.lower()), "cuBLAS")


def find_masked_oom(facts: Facts) -> Iterator[Cause]:
    """An error of another name, where memory is what was missing."""
    failure = facts.main
    if failure is None:
        return
    if failure.family == "handle" and failure.kind != "workspace":
        library = _name_library(failure.quote)
        sure = any(word in failure.quote.lower() for word in ("alloc_failed", "handle", "out of memory"))
        yield Cause(
            "masked_oom",
            0.7 if sure else 0.6,
            f"device memory: no room was left for {library} itself"
            + ("" if "out of memory" in failure.quote else ", though the message does not say so"),
            f"{library} takes some hundred MiB beside the framework's own pool when "
            "it starts; the GPU was full by then",
            (quote_line(failure),),
        )
    if (failure.family, failure.kind) == ("tensorflow", "copy"):
        array = places.copies_an_array(failure)
        yield Cause(
            "masked_oom",
            0.8,
            "device memory: a copy to the GPU found no room («Dst tensor is not initialized»)",
            "TensorFlow says so when the destination of a copy could not be allocated"
            + ("; what it copied is an array as a whole, given to fit() or made a constant" if array else ""),
            (quote_line(failure),),
            BATCH_BY_BATCH if array else "",
        )


_OF_ALLOCATOR = Pattern(r"(?:CUDA|HIP) out of memory")
"""the caching allocator's own words; the driver's are «CUDA error: out of memory»"""


_FIRST_CONTEXT = Pattern(r"cuDevicePrimaryCtxRetain|cuCtxCreate|could not retain (?:CUDA )?context")
"""the driver's calls with which a program begins to use a GPU"""


def without_numbers(facts: Facts) -> Iterator[Cause]:
    """«CUDA error: out of memory» says nothing else; only what came before it tells more."""
    failure = facts.main
    if failure is None or failure.kind != "bare" or failure.where != "device" or failure.family == "xla":
        return
    first = _FIRST_CONTEXT.search(failure.quote) or places.find_frame(failure, places.FIRST_USE)
    if first and not moment.find_training_steps(facts, failure):
        where = places.own(failure)
        yield Cause(
            "other_process",
            0.66,
            "device memory: the GPU was full before this program had put anything on it",
            f"it failed {f'in {where}, ' if where else ''}at its first use of the GPU; somebody else holds the memory",
            (quote_line(failure),),
        )
    if _OF_ALLOCATOR.search(failure.quote):
        yield Cause(
            "unknown",
            0.5,
            "cannot tell yet: device memory ran out, and the numbers of the message are missing",
            "PyTorch says behind these words how much was asked for, held and free, and this log was cut before that",
            (quote_line(failure),),
            "send the whole line, up to its last number, and the traceback above it",
        )
        return
    yield Cause(
        "unknown",
        0.5,
        "cannot tell yet: device memory ran out, and the message has no numbers",
        "the driver refused and says neither how much was asked for nor who holds the rest; with CUDA's own errors the "
        "line in the traceback may be a later one",
        (quote_line(failure),),
        "run it again with CUDA_LAUNCH_BLOCKING=1, and beside it: nvidia-smi -l 1 ; send both",
    )
