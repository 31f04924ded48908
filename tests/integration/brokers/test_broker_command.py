"""``glassfleet broker``: its port, after it was killed as well, and its password."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from broker.servers.launch import launch
from broker.url import parse_url
from schemas.errors import BrokerError
from tests.support.processes import Processes, eventually


@pytest.mark.parametrize(
    ("kind", "again"),
    [("embedded", []), pytest.param("mosquitto", ["--port", "0"], marks=pytest.mark.needs("mosquitto"))],
)
@pytest.mark.slow
def test_broker_that_was_killed_gets_its_port_again_and_the_coordinator_is_back(
    processes: Processes, kind: str, again: list[str]
) -> None:
    first = processes.start("broker", "--kind", kind, "--port", "0")
    eventually(lambda: processes.note("broker-url"))
    url = processes.note("broker-url")
    coordinator = processes.start("coordinator", "--api-port", "0")
    eventually(processes.is_healthy)
    first.kill()
    eventually(lambda: not processes.is_healthy())
    lost = [line for line in coordinator.logged().splitlines() if "broker-lost" in line]
    assert len(lost) == 1
    assert f"broker={parse_url(url).public} " in f"{lost[0]} "
    second = processes.start("broker", "--kind", kind, *again)
    eventually(processes.is_healthy)
    # The coordinator may be back before the note is written.
    eventually(lambda: processes.note("broker-url"))
    assert processes.note("broker-url") == url
    assert coordinator.is_running
    # Taken by somebody else, it is given up where no port was asked for.
    assert second.end() == 0
    with socket.create_server(("127.0.0.1", int(url.rsplit(":", 1)[1]))):
        processes.start("broker", "--kind", kind, "--port", "0")
        eventually(lambda: processes.note("broker-url") not in {"", url})


@pytest.mark.parametrize("kind", ["embedded", "mosquitto"])
def test_launch_says_which_port_is_in_use(tmp_path: Path, kind: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(BrokerError, match=f"port {port} is in use: --port 0 takes a free one"):
            launch(kind, state_dir=tmp_path, port=port)


def test_password_of_the_broker_is_in_no_output_and_nobody_else_can_read_the_state(processes: Processes) -> None:
    state = processes.folder / "new" / "state"
    umask = os.umask(0o022)
    try:
        broker = processes.start("broker", "--port", "0", "--kind", "embedded", "--state-dir", str(state), "--json")
        coordinator = processes.start(
            "coordinator", "--api-port", "0", "--state-dir", str(state), "--broker-wait", "40"
        )
        eventually(lambda: processes.note("new/state/api-url") and broker.printed())
    finally:
        os.umask(umask)
    assert (state / "broker-url").name in broker.printed()
    password = (state / "broker" / "secret").read_text().strip()
    assert password in processes.note("new/state/broker-url")
    assert all(password not in each.printed() + each.logged() for each in (broker, coordinator))
    places = [state.parent, state, *state.rglob("*")]
    assert [str(path) for path in places if path.exists() and path.stat().st_mode & 0o077] == []
