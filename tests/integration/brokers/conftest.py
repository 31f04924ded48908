"""The embedded broker, for those tests here that do not start another one."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from broker.servers.launch import EmbeddedProcess


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedProcess]:
    folder = tmp_path_factory.mktemp("broker")
    running = EmbeddedProcess(folder)
    running.start()
    yield running
    running.stop()
    log = folder / "broker.log"
    assert not log.exists() or "Traceback" not in log.read_text(), log.read_text()


@pytest.fixture
def fleet_name() -> str:
    """A fleet of its own for every test: the broker is shared and remembers."""
    return f"f{uuid.uuid4().hex[:12]}"
