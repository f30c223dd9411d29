"""The sessions in the docstrings are true."""

from __future__ import annotations

import doctest
from importlib import import_module

import pytest


@pytest.mark.parametrize(
    "module", ["report.sizes", "report.bars", "report.sweep", "report.changes", "cli.arguments", "cli.fit"]
)
def test_docstrings(module: str) -> None:
    failed, tried = doctest.testmod(import_module(f"oomproof.{module}"))
    assert tried and not failed
