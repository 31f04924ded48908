"""Ports for brokers that take a while to start: nobody is given them meanwhile."""

from __future__ import annotations

import secrets
import socket
import sys
from pathlib import Path

import pytest

from broker.servers import process
from broker.servers.process import free_port

ROOM = Path("/proc/sys/net/ipv4/ip_local_port_range")


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for its range")
def test_port_is_none_that_connections_are_given_when_there_is_room_for_it() -> None:
    first = int(ROOM.read_text(encoding="ascii").split()[0])
    if first > 22_000:
        assert all(11_000 <= free_port() < first for _ in range(20))


def test_port_that_somebody_listens_on_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        monkeypatch.setattr(process, "_first_of_the_systems_own", lambda: 60_000)
        draws = iter([port - 11_000] * 10 + [0] * 40)
        monkeypatch.setattr(secrets, "randbelow", lambda _most: next(draws))
        assert free_port() != port


def test_port_is_the_systems_choice_when_there_is_no_room_below_its_range(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_first_of_the_systems_own", lambda: 12_000)
    monkeypatch.setattr(secrets, "randbelow", None)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", free_port()))
