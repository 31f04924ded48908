"""A fleet of its own for each test that has a `broker`, and who plays its coordinator."""

from __future__ import annotations

import uuid

import pytest

from broker.paho_transport import PahoTransport
from broker.port import Link
from tests.support.agent_bench import FakeCoordinator


@pytest.fixture
def fleet_name() -> str:
    """A fleet of its own for every test: the broker is shared and remembers."""
    return f"f{uuid.uuid4().hex[:12]}"


@pytest.fixture
def coordinator(broker, fleet_name):
    transport = PahoTransport(Link(broker.url, f"coordinator-{fleet_name}"))
    yield FakeCoordinator(transport, fleet=fleet_name)
    transport.stop()
