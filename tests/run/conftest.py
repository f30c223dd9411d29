"""What tests of guards share."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module")
def quick_collector() -> Iterator[None]:
    """A guard looks for garbage after each failure; what frameworks hold for good need not be looked through here."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
