"""The machine of the coordinator that leads vanishes: nobody says goodbye, and its database learns of it by keepalive.

Each machine is a network namespace: database and broker on one, a coordinator on each of the two others.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.servers.mosquitto import find_mosquitto
from lab.processes import PROGRAM, Process, ProcessFleet
from tests.support.needs.programs import needs
from tests.support.netns import Network
from tests.support.postgres import PostgresServer
from tests.support.processes import eventually

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.needs("mosquitto", "postgresql"),
    pytest.mark.slow,
    pytest.mark.timeout(300),
]
CLOUD, ONE, TWO = "cloud", "one", "two"


@pytest.fixture
@needs("namespaces")
def network() -> Iterator[Network]:
    made = Network([CLOUD, ONE, TWO])
    yield made
    made.remove()


def test_stand_by_leads_when_the_machine_of_the_other_vanishes(network: Network, tmp_path: Path) -> None:
    cloud, host = network.machines[CLOUD], network.address(CLOUD)
    config = tmp_path / "mosquitto.conf"
    config.write_text(f"listener 1883 {host}\nallow_anonymous true\n")
    program = find_mosquitto()
    assert program is not None
    with ProcessFleet(tmp_path) as processes, PostgresServer(cloud, host) as server:
        processes.add(CLOUD, ["-c", str(config)], {}, cloud.command([program])).start()
        url = server.url(server.database())

        def start(name: str) -> Process:
            words = [
                *("coordinator", "--standby", "--state-dir", str(tmp_path / name), "--log-format", "json"),
                *("--broker", f"mqtt://{host}", "--insecure-plaintext", "--journal", url),
            ]
            process = processes.add(
                name, words, {"GLASSFLEET_COORDINATOR_API": "false"}, network.machines[name].command(PROGRAM)
            )
            process.start()
            return process

        def says(name: str, event: str) -> bool:
            return f'"event": "{event}"' in processes[name].logged()

        first = start(ONE)
        eventually(lambda: says(ONE, "connected"))
        second = start(TWO)
        eventually(lambda: says(TWO, "standing-by"))
        network.pull(ONE)
        begun = time.monotonic()
        eventually(lambda: says(TWO, "connected"), seconds=120.0)
        seconds = time.monotonic() - begun
        print(f"another leads {seconds:.1f} s after the machine vanished")
        # It comes back to find that it leads no more; nothing that it says or writes counts.
        network.plug_in(ONE)
        assert first.reap(120) in (5, 7), first.logged()
        assert second.is_running
        assert 5.0 < seconds < 90.0, "keepalives of half a minute are in between"
        assert second.end() == 0
