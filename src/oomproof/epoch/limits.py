"""From what a batch has allocated to whether it fits: where the line is, by the batches that were traced."""

from __future__ import annotations

from collections.abc import Sequence

from oomproof.memory.forecast import OUTCOMES, Forecast


def find_limit(traced: Sequence[Forecast], outcome: str) -> float:
    """Bytes allocated above which a batch comes to ``outcome`` (``at risk`` or ``does not fit``) or worse: what is left
    of the budget beside context and gaps, within what the traced batches show."""
    worse = OUTCOMES.index(outcome)
    passed = [each.allocated.expected for each in traced if OUTCOMES.index(each.on_device_outcome) < worse]
    failed = [each.allocated.expected for each in traced if OUTCOMES.index(each.on_device_outcome) >= worse]
    nearest = min(traced, key=lambda each: abs(each.budget - each.on_device.expected))
    margin = nearest.allocated.high / nearest.allocated.expected if outcome == OUTCOMES[1] else 1.0
    guess = (nearest.budget - nearest.context) / margin
    if failed:
        guess = min(guess, min(failed) - 1)
    return max(guess, max((each for each in passed if not failed or each < min(failed)), default=0))
