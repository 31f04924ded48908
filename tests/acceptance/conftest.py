"""A broker and coordinators for the tests of crashes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.servers.launch import launch
from tests.support.cloud import CoordinatorProcess, Start


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[str]:
    """URL of a broker of the test's own."""
    running = launch(state_dir=tmp_path / "broker")
    yield running.url
    running.stop()


@pytest.fixture
def start(broker: str) -> Iterator[Start]:
    """Starts coordinators, and kills what is left of them, frozen or not."""
    started: list[CoordinatorProcess] = []

    def begin(state_dir: Path, *arguments: str, **how: Any) -> CoordinatorProcess:
        state_dir.mkdir(exist_ok=True)
        started.append(CoordinatorProcess(broker, state_dir, *arguments, **how))
        return started[-1]

    yield begin
    for each in started:
        each.kill()
