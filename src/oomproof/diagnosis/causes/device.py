"""Device memory: requests that cannot be meant, fragmentation, Apple GPUs, XLA programs."""

from __future__ import annotations

from collections.abc import Iterator

from oomproof.diagnosis.amounts import number, text
from oomproof.diagnosis.causes import columns, moment, places
from oomproof.diagnosis.causes.moment import quote_line
from oomproof.diagnosis.diagnosis import Cause
from oomproof.diagnosis.facts import Facts, Failure

ABSURD_ON_HOST = 512 << 30
LARGEST_CARD = 300 << 30
ABSURD = 50
"""times the card: no count of boxes makes that"""


LITTLE_IDLE = 0.05
"""of what the allocator holds: where no more is idle, memory is full, whatever the pieces"""
LITTLE_BEFORE = 0.1
"""of the card: a tensor larger than the card that no layer asked for, when hardly anything else was there"""
MANY_PAIRS = 20_000
"""sides of a matrix that has every pair of something, or of an image that nobody means"""


def outlier_or_bug(facts: Facts) -> Iterator[Cause]:
    """More than the whole device at once: no batch adds up to that, one tensor has a wrong shape."""
    failure = facts.main
    if failure is None or failure.requested is None:
        return
    if places.copies_an_array(failure):
        return
    request = failure.requested
    room = failure.total or (failure.limit if failure.where == "device" else None) or facts.setup.card
    if failure.where == "host":
        room = failure.total
    if request < 0 or request > (1 << 50):
        yield _bug(failure, 0.97, "no machine has that much: a size or an index overflowed or is corrupt")
    elif failure.where == "host" and request >= ABSURD_ON_HOST:
        yield _bug(failure, 0.93, "one array of that size is a wrong shape or a corrupt file, not a lack of memory")
    elif failure.where == "host" and len(failure.shape) == 2 and min(failure.shape) >= MANY_PAIRS:
        rows, columns = failure.shape
        yield _bug(failure, 0.7, f"{rows:,} x {columns:,}: an image that large is not meant, and pairs go in parts")
    elif failure.where == "device" and room is not None and request > room:
        times = request / room
        alone = not places.in_network(failure) and (failure.allocated or room) < LITTLE_BEFORE * room
        confidence = 0.95 if times > 4 else 0.8 if times > 1.5 else 0.75 if alone else 0.66
        # Matching and masks multiply counts, so that one crowded image can ask for some cards at once.
        products = (places.MATCHING, places.POSTPROCESSING)
        if times < ABSURD and any(places.find_frame(failure, each) is not None for each in products):
            confidence = 0.6
        yield _bug(failure, confidence, _compare_with_device(times, room))
    elif failure.where == "device" and room is None and request > LARGEST_CARD:
        yield _bug(failure, 0.93, "no GPU has that much")


def _compare_with_device(times: float, room: int) -> str:
    if times < 1.2:
        return f"that is more than all of the device's {text(room)}: alone on it, this tensor would not fit"
    smaller = f"; the batch would have to be {times:.1f} times smaller for this tensor alone" if times < 16 else ""
    return f"that is {times:,.1f} times all of the device's {text(room)}{smaller}"


def _bug(failure: Failure, confidence: float, why: str) -> Cause:
    shape = f", shape {list(failure.shape)}" if failure.shape else ""
    place = places.own(failure)
    at = f" at {place}" if place else ""
    memory = "device" if failure.where == "device" else "host"
    return Cause(
        "outlier_or_bug",
        confidence,
        f"{memory} memory: one request of {text(failure.requested or 0)}{shape}{at}: "
        "an outlier in the data or a wrong shape",
        why,
        (quote_line(failure), *([f"asked for at {place}"] if place else [])),
    )


def fragmentation(facts: Facts) -> Iterator[Cause]:
    """Only where what the allocator holds idle could have served the request."""
    failure = facts.main
    if failure is None or failure.where != "device" or failure.requested is None or failure.family == "mps":
        return
    request = failure.requested
    if failure.family == "tensorflow":
        yield from _in_the_pool(failure, request)
        return
    if failure.family == "xla":
        yield from _on_a_tpu(failure, request)
        return
    idle, reserved = failure.idle, failure.reserved
    if idle is None or reserved is None or idle < request:
        return
    share = idle / max(reserved, 1)
    confidence = 0.35 if share < LITTLE_IDLE else min(0.93, 0.58 + share)
    yield Cause(
        "fragmentation",
        confidence,
        f"device memory: fragmented; {text(idle)} lie idle in the allocator, yet "
        f"{text(request)} in one piece were not found",
        f"reserved {number(reserved)} - allocated {number(failure.allocated or 0)} = {number(idle)} "
        f"GiB idle, more than the {text(request)} that were asked for",
        (quote_line(failure),),
    )


def _in_the_pool(failure: Failure, request: int) -> Iterator[Cause]:
    if failure.limit is None or failure.allocated is None:
        return
    room = failure.limit - failure.allocated
    if room < request or (failure.largest_free is not None and failure.largest_free >= request):
        return
    largest = f", the largest free piece has {text(failure.largest_free)}" if failure.largest_free else ""
    full = room < LITTLE_IDLE * failure.limit
    yield Cause(
        "fragmentation",
        0.35 if full else 0.8 if largest else 0.6,
        f"device memory: TensorFlow's pool is fragmented; {text(room)} are free in "
        f"it, but not {text(request)} in one piece",
        f"limit {number(failure.limit)} - in use {number(failure.allocated)} = {number(room)} GiB free{largest}",
        (quote_line(failure),),
    )


def _on_a_tpu(failure: Failure, request: int) -> Iterator[Cause]:
    free, largest = failure.free, failure.largest_free
    if free is None or largest is None or not largest < request <= free:
        return
    yield Cause(
        "fragmentation",
        0.88,
        f"device memory: fragmented; {text(free)} are free, but at most {text(largest)} in one piece",
        f"{text(request)} were asked for in one piece: less than the {number(free)} GiB that are free, more than the "
        f"{number(largest)} GiB that can be reserved",
        (quote_line(failure),),
    )


def mps_limit(facts: Facts) -> Iterator[Cause]:
    failure = facts.main
    if failure is None or failure.family != "mps":
        return
    limit, used, request = failure.limit, failure.process, failure.requested or 0
    if limit is None:
        yield Cause(
            "mps_limit",
            0.7,
            f"device memory: Metal refused a buffer of {text(request)}",
            "one buffer is larger than Metal allows",
            (quote_line(failure),),
        )
        return
    held = used if used is not None else failure.allocated or 0
    yield Cause(
        "mps_limit",
        0.82 if columns.find_leak(facts, failure, "device") is not None else 0.9,
        f"device memory: PyTorch's limit for this Mac is reached, {text(held)} of {text(limit)} allowed",
        f"allocated {number(failure.allocated or 0)} + other {number(held - (failure.allocated or 0))} "
        f"+ asked for {number(request)} = {number(held + request)} GiB, more than the {number(limit)} GiB allowed",
        (quote_line(failure),),
    )


def xla_compile(facts: Facts) -> Iterator[Cause]:
    failure = facts.main
    if failure is None or failure.family != "xla" or failure.kind == "buffer":
        return
    needs = failure.process or failure.requested or 0
    largest = f"; the largest buffer is {text(failure.pieces[0][0])}, {failure.pieces[0][1]}" if failure.pieces else ""
    if failure.total:
        why = f"used {number(needs)} of {number(failure.total)} GiB, {number(needs - failure.total)} too many{largest}"
    elif not needs:
        why = "the message has no numbers: neither what the program needs nor what the device has"
    else:
        why = (
            f"the compiled program asks for {text(failure.requested or needs)} at once"
            + (f" of {text(failure.process)} in all" if failure.process else "")
            + largest
        )
    # Every card has more than that: then it is not this program that fills it.
    small = failure.process is not None and needs < 1 << 30
    had_run = moment.late(facts, failure) is not None
    yield Cause(
        "xla_compile",
        0.4 if small else 0.85 if failure.kind != "bare" else 0.5 if had_run else 0.7,
        "device memory: the program that XLA compiled needs more than the device "
        f"has{f' ({text(failure.total)})' if failure.total else ''}",
        why,
        (quote_line(failure), *(f"buffer {text(size)} {what}" for size, what in failure.pieces[:3])),
    )
