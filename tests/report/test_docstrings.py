"""The sessions in the docstrings are true."""

from __future__ import annotations

import doctest
from importlib import import_module

import pytest

MODULES = (
    "report.sizes", "report.bars", "report.changes", "report.terminal", "memory.sweep", "memory.settings",
    "memory.batch_spec", "sources.job", "cli.arguments", "cli.fit",
)  # fmt: skip


@pytest.mark.parametrize("module", MODULES)
def test_docstrings(module: str) -> None:
    failed, tried = doctest.testmod(import_module(f"oomproof.{module}"))
    assert tried and not failed
