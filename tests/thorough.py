"""Which cases of a test are quick enough for ``make test``; the others are marked for ``make test-all``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations, product
from typing import Any

import pytest

THOROUGH = pytest.mark.thorough


def thorough_but(quick: Sequence[Any], cases: Iterable[Any]) -> list[Any]:
    """The cases, all thorough but those of ``quick``, each of which must be among them."""
    cases = list(cases)
    assert all(case in cases for case in quick), "a case that was renamed would no longer be quick"
    return [case if case in quick else _marked(case) for case in cases]


def pairwise(*values: Iterable[Any]) -> list[Any]:
    """All combinations: a few that together show every pair of values, and the others, which are thorough."""
    rest = list(product(*values))
    unseen = {pair for each in rest for pair in _pairs(each)}
    quick = []
    while unseen:
        best = max(rest, key=lambda each: len(_pairs(each) & unseen))
        unseen -= _pairs(best)
        rest.remove(best)
        quick.append(best)
    return [*quick, *(_marked(each) for each in rest)]


def _pairs(case: tuple[Any, ...]) -> set[Any]:
    return set(combinations(enumerate(case), 2))


def _marked(case: Any) -> Any:
    return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=THOROUGH)
