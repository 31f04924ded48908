"""What the simulated fleets share."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.schedules import quiet
from tests.support.simulation import Simulation


@pytest.fixture
def quiet_logs() -> Iterator[None]:
    """Nothing is logged; files of simulated fleets are closed afterwards."""
    with quiet():
        yield
    Simulation.end_all()


@pytest.fixture
def state_dir(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: agents wait for the disk at every snapshot."""
    shm = Path("/dev/shm")
    if not os.access(shm, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=shm) as folder:
        yield Path(folder)
