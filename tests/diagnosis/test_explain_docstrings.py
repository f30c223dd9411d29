"""Examples in docstrings are run."""

from __future__ import annotations

import doctest
from types import ModuleType

import pytest

from oomproof.diagnosis import amounts, diagnosis, growth, lines, patterns, tables


@pytest.mark.parametrize(
    "module", [amounts, diagnosis, growth, lines, patterns, tables], ids=lambda module: module.__name__
)
def test_docstrings(module: ModuleType) -> None:
    ran = doctest.testmod(module)
    assert (ran.failed, ran.attempted > 0) == (0, True)
