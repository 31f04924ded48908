"""An authority and a clock of the test's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.authorities import Clock, FleetCa


@pytest.fixture
def ca(tmp_path: Path) -> FleetCa:
    return FleetCa(tmp_path)


@pytest.fixture
def clock() -> Clock:
    return Clock()
