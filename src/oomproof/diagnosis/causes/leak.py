"""Memory that grows from step to step, on the device or on the host."""

from __future__ import annotations

from collections.abc import Iterator

from oomproof.diagnosis.causes import columns, moment, places
from oomproof.diagnosis.causes.moment import quote_line
from oomproof.diagnosis.diagnosis import Cause
from oomproof.diagnosis.facts import Facts

LARGE = 256 << 20
"""a request from here on is more likely a larger tensor than the last drop of a leak"""


def leak(facts: Facts) -> Iterator[Cause]:
    failure = facts.main
    if failure is None or failure.where == "shm":
        return
    memory = "device" if failure.where == "device" else "host"
    rising = columns.find_leak(facts, failure, failure.where)
    code = facts.notes.get("leak_code", ())
    kept = places.find_frame(failure, places.KEEPING)
    late = moment.late(facts, failure)
    if rising is not None:
        shown = columns.describe_course(rising)
        begin, end = (columns.level(rising, rising.points[place].size) for place in (0, -1))
        # The most so far rises with the data as well, and a small rise may not be what ended the run.
        confidence = 0.8 if rising.trend.maximum else 0.88
        confidence -= 0.08 if rising.rise < columns.LITTLE else 0.0
        yield Cause(
            "leak",
            confidence + (0.05 if code or kept else 0.0),
            f"{memory} memory: {'what is free falls' if rising.trend.left else 'it grows'} from step to step, from "
            f"{begin} to {end}: something is kept that should be freed",
            f"{shown}; a step that fits at first does not run out at "
            f"{moment.describe_moment(late) if late else 'a later step'} unless something stays",
            (shown, quote_line(failure), *code[:2]),
        )
    elif memory == "device" and (code or kept) and late is not None:
        yield Cause(
            "leak",
            0.75,
            f"device memory: it held until {moment.describe_moment(late)}; the traceback shows a loss that is kept "
            "with its graph",
            f"{code[0] if code else kept.code if kept else ''}: adding up tensors keeps every step's graph alive",
            (quote_line(failure), *code[:2]),
        )
    elif memory == "device" and late is not None and not columns.describe_courses(facts, failure, "device"):
        if "multiscale" in facts.setup.found:
            return
        # One program of XLA takes the same at every step, whatever it asks for at once.
        small = failure.requested is None or failure.requested < LARGE or failure.family == "xla"
        yield Cause(
            "leak",
            0.55 if small else 0.45,
            f"device memory: something may grow from step to step: it held until {moment.describe_moment(late)}",
            "the log has no memory figures, and a slow leak ends a run just as a larger batch does",
            (quote_line(failure),),
        )
