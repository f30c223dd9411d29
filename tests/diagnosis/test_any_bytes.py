"""Whatever the bytes: a diagnosis, never an exception; and bounded memory for logs of any length."""

from __future__ import annotations

import io
import json
import time
import tracemalloc
from collections.abc import Iterator

import pytest
from fuzz import logs

import oomproof
from oomproof.api.explain import explain_stream
from oomproof.diagnosis.diagnosis import CAUSES
from oomproof.diagnosis.reading import keep_parts, read
from oomproof.report.explain import document

MIB = 1 << 20
STEP = b"Epoch [1][50/7330] lr: 1.978e-03, time: 0.412, memory: 3770, loss: 2.31\n"
OOM = (
    b"RuntimeError: CUDA out of memory. Tried to allocate 392.00 MiB (GPU 0; 10.76 GiB total capacity; "
    b"4.10 GiB already allocated; 313.00 MiB free; 4.52 GiB reserved in total by PyTorch)\n"
)


def test_damaged_logs_are_diagnosed() -> None:
    slowest = 0.0
    for log in logs(400, seed=6):
        started = time.process_time()
        found = oomproof.explain(log)
        slowest = max(slowest, time.process_time() - started)
        assert found.cause in CAUSES and found.verdict and found.why and found.next
        json.dumps(document(found), allow_nan=False)
    assert slowest < 3, "a pattern that takes more than linear time"


@pytest.mark.parametrize(
    "unit",
    [
        b"\x00",
        b"A",
        b"(",
        b"\n",
        b"1.1,",
        b"\x1b[31m",
        b'File "a.py", line 1, in f\n',
        b"Tried to allocate ",
        b"[1,",
        b" Killed ",
        b"||||| 1/2 [",
    ],
    ids=repr,
)
def test_the_same_again_and_again_takes_linear_time(unit: bytes) -> None:
    started = time.process_time()
    oomproof.explain(unit * (200_000 // len(unit)))
    assert time.process_time() - started < 10


def chunks(size: int, *inserted: bytes) -> Iterator[bytes]:
    """A log of ``size`` MiB, with texts at equal distances within it."""
    filler = STEP * (MIB // len(STEP))
    places = {(index + 1) * size // (len(inserted) + 1): text for index, text in enumerate(inserted)}
    for index in range(size):
        yield filler + places.get(index, b"")


def test_long_logs_are_kept_in_part() -> None:
    tracemalloc.start()
    kept = keep_parts(chunks(48, OOM))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 24 * MIB
    assert kept.cut and kept.size > 47 * MIB
    assert kept.lines == 48 * (MIB // len(STEP)) + 1
    assert sum(len(segment.data) for segment in kept.segments) < 4 * MIB


def test_a_failure_is_found_wherever_it_stands_and_has_its_line() -> None:
    for size, place in ((3, 1), (9, 4), (9, 8)):
        data = b"".join(chunks(size))
        cut = data.index(b"\n", place * MIB + 77) + 1
        found = explain_stream(io.BytesIO(data[:cut] + OOM + data[cut:]))
        assert found.cause == "other_process"
        assert found.facts["line"] == data[:cut].count(b"\n") + 1


def test_a_failure_across_two_reads() -> None:
    whole = STEP * 20_000 + OOM + STEP * 20_000
    for cut in range(len(STEP) * 20_000 - 5, len(STEP) * 20_000 + len(OOM) + 5, 23):
        kept = keep_parts([whole[:cut], whole[cut:]])
        assert any(OOM in segment.data for segment in kept.segments)


@pytest.mark.parametrize("between", [b"\0", b"\x1b[1m", b"\x1b[38;5;208m"], ids=repr)
def test_a_failure_in_the_middle_whose_letters_have_something_between_them(between: bytes) -> None:
    """Behind the head and before the tail of a long log, only what a search for words finds is kept."""
    data = b"".join(chunks(4))
    cut = data.index(b"\n", 2 * MIB) + 1
    dressed = between.join(OOM[place : place + 1] for place in range(len(OOM) - 1)) + b"\n"
    found = explain_stream(io.BytesIO(data[:cut] + dressed + data[cut:]))
    assert found.facts["requested"] == 392 * MIB
    assert found.facts["line"] == data[:cut].count(b"\n") + 1
    assert found.facts["size"] == len(data) + len(dressed)


def test_colours_across_two_reads() -> None:
    class Slow(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            return super().read(7)

    assert explain_stream(Slow(b"\x1b[31m\x1b[1m" + OOM.replace(b"memory", b"mem\x1b[0mory"))).cause == "other_process"


def test_a_log_that_begins_with_a_hole() -> None:
    found = oomproof.explain(bytes(3 * MIB) + OOM)
    assert found.facts["requested"] == 392 * MIB


def test_a_million_failures_keep_first_and_last() -> None:
    first, last = OOM.replace(b"GPU 0", b"GPU 3"), OOM.replace(b"GPU 0", b"GPU 7")
    kept = keep_parts([first, *(OOM * (MIB // len(OOM)) for _ in range(150)), last])
    text = b"".join(segment.data for segment in kept.segments)
    assert first in text and last in text and len(text) < 16 * MIB


def test_segments_are_in_order_and_do_not_overlap() -> None:
    kept = read(io.BytesIO(b"".join(chunks(7, OOM, b"Killed\n", OOM))))
    ends = [0]
    for segment in kept.segments:
        assert segment.start >= ends[-1]
        ends.append(segment.start + len(segment.data))


def test_an_empty_log_and_one_of_blanks() -> None:
    assert oomproof.explain("").cause == oomproof.explain("\n \n").cause == oomproof.explain(b"").cause == "unknown"
