"""The forecasts of forecasts.py as fixtures."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from forecasts import MIB, SETTINGS, mask_rcnn

from oomproof.memory.forecast import Forecast
from oomproof.sources.job import Setting


@pytest.fixture
def fits() -> Forecast:
    return mask_rcnn(12042 * MIB)


@pytest.fixture
def at_risk() -> Forecast:
    return mask_rcnn(6000 * MIB, "RTX 2060 6GB")


@pytest.fixture
def does_not_fit() -> Forecast:
    return mask_rcnn(4096 * MIB, "4GiB")


@pytest.fixture
def settings() -> tuple[Setting, ...]:
    return SETTINGS


@pytest.fixture
def forecast_on() -> Callable[[int], Forecast]:
    return mask_rcnn
