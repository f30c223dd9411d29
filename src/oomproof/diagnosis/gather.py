"""Lines -> Facts: every family reads its messages, and the failure that ended the run is chosen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from oomproof.diagnosis import lines as cleaning
from oomproof.diagnosis import not_memory, progress, setup
from oomproof.diagnosis.amounts import tensor
from oomproof.diagnosis.facts import Facts, Failure, Line, ProgressLine
from oomproof.diagnosis.families import FAMILIES
from oomproof.diagnosis.memory_columns import read_trends
from oomproof.diagnosis.patterns import Pattern, any_of
from oomproof.diagnosis.reading import KeptLog
from oomproof.diagnosis.tables import find_rows

# One look per line, before the families have theirs.
_ANY = any_of(*(family.TRIGGER.pattern for family in FAMILIES))
_NOTES = {
    "retracing": Pattern(
        r"triggered tf\.function retracing|Retracing|too many recompil|recompile_limit|cache_size_limit"
    ),
    "leak_code": Pattern(
        r"^\s*(?:self\.)?\w*loss\w*(?:\[[^\]]{1,30}\])?\s*\+=\s*(?!.*(?:item\(\)|detach"
        r"|float\())\w*loss\w*|losses?\.append\((?!.*(?:item\(\)|detach))[^)]*loss"
        r"|retain_graph=True|outputs?\.append\((?!.*(?:cpu|detach))"
    ),
}
_EXCEPTION = Pattern(r"[\w.]{0,80}(?:Error|Exception|error)\b|terminate called|Aborted")
_PRINTED_SHAPE = Pattern(r"torch\.Size\(\[((?:\d{1,9}, ?){2,5}\d{1,9})\]\)")
SHAPES_WITHIN = 200
MOST_FAILURES = 600
LINES_OF_AN_END = 4
INFORMATION = {
    ("cuda", "numbers"): 12,
    ("cuda", "outside_allocator"): 10,
    ("cuda", "bare"): 5,
    ("mps", "limit"): 12,
    ("mps", "buffer"): 9,
    ("cpu", "allocator"): 10,
    ("cpu", "primitive"): 6,
    ("cpu", "pinned"): 9,
    ("tensorflow", "tensor"): 12,
    ("tensorflow", "allocator"): 8,
    ("tensorflow", "copy"): 6,
    ("tensorflow", "driver"): 4,
    ("xla", "program"): 11,
    ("xla", "tpu"): 11,
    ("xla", "buffer"): 9,
    ("xla", "bare"): 9,
    ("handle", "tensorflow"): 6,
    ("handle", "torch"): 6,
    ("handle", "workspace"): 6,
    ("loader", "shm"): 10,
    ("loader", "bus"): 4,
    ("loader", "mmap"): 8,
    ("loader", "fork"): 8,
    ("loader", "paging_file"): 9,
    ("loader", "worker_killed"): 5,
    ("loader", "worker_gone"): 3,
    ("kernel", "cgroup"): 8,
    ("kernel", "machine"): 8,
    ("cluster", "limit"): 7,
    ("cluster", "notebook"): 7,
    ("cluster", "node"): 7,
    ("array", "numpy"): 9,
    ("array", "opencv"): 8,
    ("array", "bomb"): 8,
    ("array", "python"): 6,
    ("other", "numbers"): 8,
    ("other", "bare"): 4,
    ("other", "search"): 13,
    ("exit", "killed"): 3,
}
"""how much a message tells; of those that stand together, the most telling is the one to explain"""


def gather(kept: KeptLog) -> Facts:
    return from_lines(list(cleaning.lines(kept.segments)), kept)


def from_lines(lines: Sequence[Line], kept: KeptLog | None = None) -> Facts:
    rows = find_rows(lines)
    steps = progress.read_progress(lines, rows)
    failures = _mark_outlived(_failures(lines), steps)
    main = _main(failures, steps)
    return Facts(
        failures=failures,
        main=main,
        again=_again(main, failures),
        progress=steps,
        trends=read_trends(lines, steps, rows),
        setup=setup.setup(lines),
        largest_tensor=_largest_tensor(lines, main),
        errors=_errors(lines, failures),
        notes=_notes(lines),
        lines=kept.lines if kept else len(lines),
        size=kept.size if kept else sum(len(line.text) for line in lines),
        cut=kept.cut if kept else False,
    )


def _failures(lines: Sequence[Line]) -> tuple[Failure, ...]:
    found: list[Failure] = []
    for at in _find_speaking_lines(lines):
        for family in FAMILIES:
            if not family.TRIGGER.search(lines[at].text):
                continue
            failure = family.read(lines, at)
            if failure is not None:
                _add(failure, found)
                break
    return tuple(found)


def _mark_outlived(failures: tuple[Failure, ...], steps: Sequence[ProgressLine]) -> tuple[Failure, ...]:
    """A message without traceback or exception, printed in passing, and training after it: the program caught it.

    An exception's name may be printed with it; then the training must have come to its end.
    """
    trained = max((step.at for step in steps if step.doing == "train"), default=-1)
    ended = max((failure.at for failure in failures if failure.fatal), default=-1)
    # Detectron2 sums up with two such lines what an exception ended.
    finished = steps[-1:] and steps[-1].doing == "done" and sum(step.at > ended for step in steps) > LINES_OF_AN_END
    return tuple(
        replace(failure, fatal=False)
        if failure.family in ("cuda", "other")
        and failure.at == ended < trained
        and not failure.frames
        and (not _EXCEPTION.match(failure.quote) or finished)
        else failure
        for failure in failures
    )


def _find_speaking_lines(lines: Sequence[Line]) -> list[int]:
    """Where a family has something to read; of very many, the first and the last."""
    speaks = _ANY.compile().search
    places = [at for at, line in enumerate(lines) if speaks(line.text)]
    return places if len(places) <= MOST_FAILURES else places[: MOST_FAILURES // 2] + places[-MOST_FAILURES // 2 :]


def _add(failure: Failure, found: list[Failure]) -> None:
    """Lines of one message that trigger twice make one failure."""
    for place in range(len(found) - 1, max(-1, len(found) - 6), -1):
        other = found[place]
        same = (
            (other.family, other.rank) == (failure.family, failure.rank)
            and failure.line - other.line <= _REACH.get(failure.family, 3)
            # cuDNN tells of every try and, on another line, that all of them failed.
            and (failure.family != "handle" or failure.fatal == other.fatal)
        )
        if same and (failure.requested in (None, other.requested) or other.requested is None):
            if information(failure) > information(other):
                found[place] = replace(failure, at=other.at, frames=other.frames or failure.frames)
            return
    found.append(failure)


_REACH = {"kernel": 500, "xla": 200, "cuda": 6, "cluster": 20}


def information(failure: Failure) -> int:
    known = (failure.requested, failure.total, failure.free, failure.limit, failure.process, failure.op or None)
    return 2 * INFORMATION.get((failure.family, failure.kind), 0) + sum(value is not None for value in known)


def _main(failures: Sequence[Failure], steps: Sequence[ProgressLine]) -> Failure | None:
    """Of the failures behind the last training step that was followed by one: the most telling, the first of equals."""
    fatal = [failure for failure in failures if failure.fatal]
    if not fatal:
        refused = [failure for failure in failures if (failure.family, failure.kind) == ("tensorflow", "driver")]
        went_on = refused and any(step.at > refused[-1].at and step.doing == "train" for step in steps)
        return refused[0] if refused and not went_on else None
    last = [fatal[-1]]
    trained = [step.at for step in steps if step.doing == "train" and step.step is not None]
    for failure in reversed(fatal[:-1]):
        if any(failure.at < at < last[0].at for at in trained) or len(last) >= 100:
            break
        last.insert(0, failure)
    # A worker's error is told twice; the second time it has its traceback.
    return max(last, key=lambda failure: (information(failure), bool(failure.frames)))


def _again(main: Failure | None, failures: Iterable[Failure]) -> int:
    if main is None or main.requested is None or main.family == "tensorflow":
        return 0  # TensorFlow tells of one refusal several times
    return sum(
        1
        for failure in failures
        if (failure.requested, failure.family, failure.kind) == (main.requested, main.family, main.kind)
    )


def _errors(lines: Sequence[Line], failures: Sequence[Failure]) -> tuple[Failure, ...]:
    """Errors on lines that no family knows."""
    taken = {failure.line for failure in failures if failure.family != "exit"}
    return tuple(error for error in not_memory.errors(lines) if error.line not in taken)


def _largest_tensor(lines: Sequence[Line], main: Failure | None) -> int:
    """Of the shapes that a program prints on its way, as people do who look for the layer that fails."""
    sizes = [0]
    for line in lines[max(0, main.at - SHAPES_WITHIN) : main.at] if main is not None else ():
        for found in _PRINTED_SHAPE.finditer(line.text[:400]):
            sides = tuple(int(side) for side in found[1].split(","))
            sizes.append(tensor(sides, "float32"))
    return max(sizes)


def _notes(lines: Sequence[Line]) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for line in lines:
        for name, pattern in _NOTES.items():
            if len(found.get(name, ())) < 50 and pattern.search(line.text[:400]):
                found.setdefault(name, []).append(f"line {line.number}: {' '.join(line.text.split())[:200]}")
    return {name: tuple(quotes) for name, quotes in found.items()}
