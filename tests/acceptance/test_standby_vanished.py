"""The machine of the coordinator that leads vanishes: nobody says goodbye, and its database learns of it by keepalive.

Each machine is a network namespace: database and broker on one, a coordinator on each of the two others.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.servers.mosquitto import find_mosquitto
from tests.support.netns import Network, why_not
from tests.support.postgres import PostgresServer
from tests.support.processes import ROOT, eventually

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.mosquitto,
    pytest.mark.postgresql,
    pytest.mark.slow,
    pytest.mark.timeout(300),
]
CLOUD, ONE, TWO = "cloud", "one", "two"


@pytest.fixture
def network() -> Iterator[Network]:
    if reason := why_not():
        pytest.skip(reason)
    made = Network([CLOUD, ONE, TWO])
    yield made
    made.remove()


def test_stand_by_leads_when_the_machine_of_the_other_vanishes(network: Network, tmp_path: Path) -> None:
    cloud, host = network.machines[CLOUD], network.address(CLOUD)
    config = tmp_path / "mosquitto.conf"
    config.write_text(f"listener 1883 {host}\nallow_anonymous true\n")
    program = find_mosquitto()
    assert program is not None
    cloud.start([program, "-c", str(config)], tmp_path / "mosquitto.log", {})
    with PostgresServer(cloud, host) as server:
        url = server.url(server.database())

        def start(name: str) -> subprocess.Popen[bytes]:
            return network.machines[name].start(
                [
                    *(sys.executable, "-m", "console.main", "coordinator", "--standby", "--no-api"),
                    *("--broker", f"mqtt://{host}", "--insecure-plaintext", "--journal", url),
                    *("--state-dir", str(tmp_path / name), "--log-format", "json"),
                ],
                tmp_path / f"{name}.log",
                {"PYTHONPATH": str(ROOT)},
            )

        def says(name: str, event: str) -> bool:
            return f'"event": "{event}"' in (tmp_path / f"{name}.log").read_text()

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
        assert first.wait(120) in (5, 7), (tmp_path / f"{ONE}.log").read_text()
        assert second.poll() is None
        assert 5.0 < seconds < 90.0, "keepalives of half a minute are in between"
        second.terminate()
        assert second.wait(30) == 0
