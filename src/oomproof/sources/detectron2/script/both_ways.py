"""Where a condition is not known: both ways are followed, each from the same memory, and joined."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from oomproof.sources.detectron2.script.contents import Content, Parts, Ref, Run, Unknown
from oomproof.sources.detectron2.script.joining import join_memories, join_runs, join_values

if TYPE_CHECKING:
    from oomproof.sources.detectron2.script.reader import Reader


@dataclass(frozen=True)
class Ended:
    """A block that does not run on to its end: what it returns, or how it leaves a loop."""

    value: Any = None
    how: str = "return"


Outcome = Ended | None


@dataclass(frozen=True)
class Exit:
    """A ``break`` or ``continue`` on one of two ways: the rest of the round is run by the other way alone."""

    how: str
    contents: dict[int, Content]
    why: str


class ScriptEnds(Exception):
    """``sys.exit()`` or an exception: nothing behind it is run."""


@dataclass
class _Way:
    outcome: Outcome
    contents: dict[int, Content]
    runs: list[Ref]

    @property
    def how(self) -> str:
        return self.outcome.how if self.outcome is not None else ""

    @property
    def value(self) -> Any:
        return self.outcome.value if self.outcome is not None else None


def either_value(reader: Reader, why: str, one: Callable[[], Any], other: Callable[[], Any]) -> Any:
    outcome = either(reader, f"«{why}»", lambda: Ended(one()), lambda: Ended(other()))
    return outcome.value if outcome is not None else Unknown(why)


def either(reader: Reader, why: str, one: Callable[[], Outcome], other: Callable[[], Outcome]) -> Outcome:
    """What differs after both is unknown, because of ``why``. A way on which the script ends is not taken."""
    before, runs = reader.memory.contents, list(reader.runs)
    first, second = _follow(reader, one, before, runs), _follow(reader, other, before, runs)
    if first.how == second.how == "end":
        raise ScriptEnds
    if first.how == "end":
        return _take(reader, second)
    if second.how == "end":
        return _take(reader, first)
    _join_new_runs(first, second, len(runs), why)
    reader.runs = first.runs if len(first.runs) > len(runs) else second.runs
    for returned, on in ((first, second), (second, first)):
        if returned.how == "return" != on.how and reader.returns:
            # The rest of the function is run by the other way alone; its caller sees both.
            reader.returns[-1].append((returned.value, returned.contents, why))
            reader.memory.contents = on.contents
            return on.outcome
    for left, on in ((first, second), (second, first)):
        if left.how in ("break", "continue") and left.how != on.how and reader.exits:
            reader.exits[-1].append(Exit(left.how, left.contents, why))
            reader.memory.contents = on.contents
            return on.outcome
    reader.memory.contents = join_memories(first.contents, second.contents, why)
    if first.how == second.how == "return":
        return Ended(join_values(first.value, second.value, why))
    return first.outcome if first.how == second.how else None


def leave_by_exits(reader: Reader, outcome: Outcome, exits: list[Exit]) -> Outcome:
    """Joins what a round or a loop came to with the ways that had left it already."""
    for each in exits:
        if outcome is not None and outcome.how == "return" and reader.returns:
            reader.returns[-1].append((outcome.value, reader.memory.contents, each.why))
            reader.memory.contents, outcome = each.contents, None
        elif outcome is not None:
            outcome, reader.memory.contents = None, join_memories(reader.memory.contents, each.contents, each.why)
        else:
            reader.memory.contents = join_memories(reader.memory.contents, each.contents, each.why)
    return outcome


def _take(reader: Reader, way: _Way) -> Outcome:
    reader.memory.contents, reader.runs = way.contents, way.runs
    return way.outcome


def _follow(reader: Reader, way: Callable[[], Outcome], before: dict[int, Content], runs: list[Ref]) -> _Way:
    reader.memory.contents, reader.runs = dict(before), list(runs)
    reader.forks += 1
    calls, returns, file = list(reader.calls), len(reader.returns), reader.file
    try:
        outcome = way()
    except ScriptEnds:
        outcome = Ended(how="end")
        reader.calls, reader.file = calls, file
        del reader.returns[returns:]
    finally:
        reader.forks -= 1
    return _Way(outcome, reader.memory.contents, reader.runs)


def _join_new_runs(first: _Way, second: _Way, known: int, why: str) -> None:
    """A trainer that is built by either way is one trainer, whatever is the same of it."""
    if len(first.runs) <= known or len(second.runs) <= known:
        return
    one, other = first.runs[known], second.runs[known]
    left, right = first.contents[one.number], second.contents[other.number]
    if not isinstance(left, Run) or not isinstance(right, Run):
        return
    first.contents[one.number] = second.contents[one.number] = join_runs(left, right, why)
    for number, content in second.contents.items():
        if isinstance(content, Parts) and other in content.parts.values():
            same = {name: one if value == other else value for name, value in content.parts.items()}
            second.contents[number] = replace(content, parts=same)
