"""The compose file outside containers: its script, its services' own commands, as local processes over mutual TLS."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from broker.servers.mosquitto import find_mosquitto
from broker.servers.process import free_port
from lab.processes import Process
from lab.qoe.simulator import simulate_vehicle, write_vehicle
from tests.support.postgres import PASSWORD, USER, PostgresServer
from tests.support.processes import ROOT, Processes, eventually

pytestmark = [pytest.mark.acceptance, pytest.mark.needs("mosquitto"), pytest.mark.timeout(180)]
FOLDER = ROOT / "deploy" / "compose"
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load((FOLDER / "compose.yaml").read_text(encoding="utf-8"))["services"]
BIN = Path(sys.executable).parent


class Machine(Processes):
    """One machine in place of the containers: volumes are folders, host names are this one."""

    def __init__(self, folder: Path, database: str) -> None:
        super().__init__(folder)
        self.ports = {"8883": str(free_port()), "8080": str(free_port())}
        self.database = database
        kept = {name: value for name, value in os.environ.items() if not name.startswith("GLASSFLEET_")}
        self.environment = {**kept, "PATH": f"{BIN}:{kept.get('PATH', '')}", "PGPASSWORD": PASSWORD}

    def local(self, word: str) -> str:
        """Return a word of a command as it is on this machine."""
        word = re.sub(r"(/srv/(?:ca|identities|broker)|/data)", lambda result: f"{self.folder}{result[0]}", word)
        word = word.replace("glassfleet@database/glassfleet", self.database).replace("//broker:", "//localhost:")
        for port, own in self.ports.items():
            word = word.replace(port, own)
        return word.replace("0.0.0.0", "127.0.0.1")

    def provision(self) -> subprocess.CompletedProcess[str]:
        script = SERVICES["provision"]["entrypoint"]
        assert script == ["/bin/sh", "/provision.sh"]
        return subprocess.run(
            ["/bin/sh", str(FOLDER / "provision.sh")],
            capture_output=True, text=True, check=False,
            env={
                **self.environment,
                **SERVICES["provision"]["environment"],
                "GLASSFLEET_CA_DIR": f"{self.folder}/srv/ca",
                "IDENTITIES": f"{self.folder}/srv/identities",
                "BROKER_DIR": f"{self.folder}/srv/broker",
                "BROKER_PORT": self.ports["8883"],
            },
        )  # fmt: skip

    def serve(self, service: str, program: str) -> Process:
        words = [self.local(word) for word in SERVICES[service]["command"]]
        if service == "standby":  # each container has a port 8080; this machine has one
            words = [word.replace(self.ports["8080"], "0") for word in words]
        state = {"GLASSFLEET_STATE_DIR": f"{self.folder}/state-{service}", "GLASSFLEET_LOG_FORMAT": "json"}
        return self.start(*words, program=[program], environment=state)

    def glassfleet(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {**self.environment, "GLASSFLEET_STATE_DIR": f"{self.folder}/state-coordinator"}
        return subprocess.run(
            [str(BIN / "glassfleet"), *arguments],
            capture_output=True, text=True, check=False, env=environment, cwd=ROOT,
        )  # fmt: skip


@pytest.fixture
def machine(tmp_path: Path, postgres: PostgresServer) -> Iterator[Machine]:
    name = postgres.database()
    for folder in ("data", "srv/ca", "srv/identities", "srv/broker"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "srv" / "ca").rmdir()
    with Machine(tmp_path, f"{USER}@127.0.0.1:{postgres.port}/{name}") as made:
        yield made


@pytest.mark.slow
def test_compose_services_learn_a_model_outside_containers(machine: Machine) -> None:
    done = machine.provision()
    assert done.returncode == 0, done.stderr
    again = machine.provision()
    assert (again.returncode, "identity of" in again.stdout) == (0, False), "what is there is kept"
    config = machine.folder / "srv" / "broker" / "mosquitto.conf"
    text = config.read_text()
    # Nobody here is the containers' user; and what they publish to a network stays on this machine.
    text = text.replace("0.0.0.0", "127.0.0.1").replace("user mosquitto", "user root")
    config.write_text(text)

    program = find_mosquitto()
    assert program is not None
    words = SERVICES["broker"]["command"]
    assert words[0] == "mosquitto"
    SERVICES["broker"]["command"] = words[1:]
    try:
        broker = machine.serve("broker", program)
    finally:
        SERVICES["broker"]["command"] = words
    glassfleet = str(BIN / "glassfleet")
    coordinator = machine.serve("coordinator", glassfleet)

    def health(service: str = "coordinator") -> int:
        environment = {**machine.environment, "GLASSFLEET_STATE_DIR": f"{machine.folder}/state-{service}"}
        probe = [sys.executable, str(ROOT / "deploy" / "container" / "health.py")]
        return subprocess.run(probe, capture_output=True, check=False, env=environment).returncode

    eventually(lambda: health() == 0 or coordinator.has_ended, what="never healthy")
    standby = machine.serve("standby", glassfleet)
    for number in (1, 2, 3):
        write_vehicle(machine.folder / "data" / f"vehicle-{number}.csv.gz", simulate_vehicle(number, 0))
        machine.serve(f"vehicle-{number}", glassfleet)

    eventually(lambda: health("standby") == 0 or standby.has_ended, what="the stand-by is never healthy")
    assert coordinator.is_running, machine.logs()
    assert standby.is_running, machine.logs()
    run = machine.glassfleet(*("run", "start", "--min-agents", "3", "--deadline", "60", "--model", "qoe", "--wait"))
    assert run.returncode == 0, run.stderr + machine.logs()
    assert "model qoe v1" in run.stdout
    waits = machine.glassfleet("run", "list", "--state-dir", f"{machine.folder}/state-standby")
    assert (waits.returncode, "on stand-by: ask the one on" in waits.stderr) == (11, True), waits.stderr

    url = f"mqtts://localhost:{machine.ports['8883']}"
    identity = f"{machine.folder}/srv/identities/coordinator"
    doctor = machine.glassfleet("doctor", "--broker", url, "--identity", identity)
    assert "MQTT 5" in doctor.stdout, doctor.stdout
    assert "WRONG" not in doctor.stdout, doctor.stdout
    broker.kill()
    eventually(lambda: health() == 1, what="healthy without a broker")
