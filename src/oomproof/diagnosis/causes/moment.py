"""When a failure came, and what the run was doing: what the rules ask of progress lines and memory columns."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from oomproof.diagnosis.amounts import text
from oomproof.diagnosis.facts import Facts, Failure, Progress, Trend

MANY_STEPS = 50
RUNNING_MAXIMA = ("max_mem", "memory", "max mem", "GPU_mem")


def last(facts: Facts, failure: Failure) -> Progress | None:
    found = facts.before(failure)
    return found[-1] if found else None


def doing(facts: Facts, failure: Failure) -> str:
    """train, eval, cache ...: the last activity before the failure; empty where the log does not tell."""
    step = last(facts, failure)
    return step.doing if step else ""


def trained(facts: Facts, failure: Failure) -> list[Progress]:
    return [step for step in facts.before(failure) if step.doing == "train"]


def late(facts: Facts, failure: Failure) -> Progress | None:
    """The last training step, if the run had gone on for long before: then the settings as such fitted."""
    steps = trained(facts, failure)
    if not steps:
        return None
    numbers = [step.step for step in steps if step.step is not None]
    epochs = [step.epoch for step in steps if step.epoch is not None]
    # Steps that count through a resumed run start high: there, what was seen pass by counts.
    resumed = any(step.doing == "resume" for step in facts.before(failure))
    passed = max(numbers, default=0) - (min(numbers) if resumed and len(numbers) > 1 else 0)
    if passed >= MANY_STEPS or (epochs and max(epochs) - min(epochs) >= 1) or (epochs and max(epochs) >= 2):
        return steps[-1]
    return None


def first_step(facts: Facts, failure: Failure) -> bool:
    """Whether the log shows that it died at once: it has progress, but hardly a step."""
    steps = trained(facts, failure)
    numbers = [step.step for step in steps if step.step is not None]
    return late(facts, failure) is None and (not numbers or max(numbers) <= 5)


def said(step: Progress) -> str:
    parts = [
        f"epoch {step.epoch}" if step.epoch is not None else "",
        f"step {step.step}" if step.step is not None else "",
    ]
    return " ".join(part for part in parts if part) or "training"


def growing(trends: Sequence[Trend], where: str) -> tuple[Trend, int, int] | None:
    """A memory column that rises to its end: (column, from, to). Jumps that level off are peaks of the data."""
    for trend in trends:
        values = [size for _, size in trend.points]
        if trend.where != where or len(values) < 8:
            continue
        third = len(values) // 3
        begin, middle, end = (median(values[a:b]) for a, b in ((0, third), (third, 2 * third), (2 * third, None)))
        rise = end - begin
        if rise < max(128 << 20, begin * 0.08):
            continue
        # A leak goes on by equal steps: half of the rise in each half, and up nearly everywhere.
        steady = 0.25 <= (middle - begin) / rise <= 0.75
        pieces = [
            median(values[a : a + max(1, len(values) // 8)]) for a in range(0, len(values), max(1, len(values) // 8))
        ]
        ups = sum(after > before for before, after in pairwise(pieces))
        if steady and ups >= len(pieces) - 2:
            return trend, int(values[0]), int(values[-1])
    return None


def median(values: Sequence[int]) -> int:
    """The middle one; the statistics module would take a tenth of the command's start to load."""
    return sorted(values)[len(values) // 2]


def column(trend: Trend, low: int, high: int) -> str:
    first, final = trend.points[0][0], trend.points[-1][0]
    return (
        f"«{trend.name}» rises from {text(low)} (line {first}) to {text(high)} (line "
        f"{final}), over {len(trend.points)} figures"
    )


def quoted(failure: Failure) -> str:
    return f"line {failure.line}: {failure.quote}"
