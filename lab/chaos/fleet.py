"""The fleet under test: broker, coordinator and agents, whose processes and connections faults are done to."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from broker.servers.child import ChildBroker
from broker.servers.launch import launch
from broker.servers.process import free_port
from broker.url import parse_url
from lab.chaos.certificate_office import CertificateOffice
from lab.chaos.faulty_transport import VARIABLE, MischiefFile
from lab.chaos.proxy import Proxy
from lab.chaos.schedule import BROKER, COORDINATOR
from lab.processes import Process, ProcessFleet
from schemas.errors import RunFailedError

_CONNECTED = b'"event": "connected"'
"""What coordinator and agents log when a connection stands."""

FLEET = "chaos"


class Fleet:
    """Broker, coordinator and agents, each behind its own road to the broker.

    Parameters
    ----------
    work : Path
        Folder for state and logs.
    files : mapping of agent id to Path
        Their data.
    broker_kind : str
    limits : mapping of name to int
        ``max_message_bytes`` of coordinator and agents.
    secure : bool
        Mutual TLS, everybody with an identity, every message signed; needs Mosquitto.
    """

    def __init__(
        self,
        work: Path,
        files: Mapping[str, Path],
        broker_kind: str,
        limits: Mapping[str, int],
        *,
        secure: bool = False,
    ) -> None:
        self.work = work
        self.recoveries: dict[str, list[float]] = {"coordinator": [], "agent": [], "broker": []}
        self.processes = ProcessFleet(work / "logs", module="lab.chaos.child")
        self.mischief: dict[str, MischiefFile] = {}
        self.working: set[str] = set()
        """Which processes are connected, as far as `watch` has seen."""
        self.office = CertificateOffice(work, FLEET, COORDINATOR, list(files)) if secure else None
        self.broker: ChildBroker = (
            launch(prefer=broker_kind, state_dir=work / "broker") if self.office is None else self.office.broker
        )
        address = parse_url(self.broker.url)
        self.proxy = Proxy(address.host, address.port)
        self.api_port = free_port()
        shared = {"GLASSFLEET_FLEET": FLEET, "GLASSFLEET_LOG_FORMAT": "json"}
        common = ["--keepalive", "3", "--connect-timeout", "2", "--broker-wait", "0"]
        for index, name in enumerate((COORDINATOR, *files)):
            url = replace(address, port=self.proxy.open(name)).url
            limit = ["--max-message-bytes", str(limits[name])]
            if name == COORDINATOR:
                arguments = ["coordinator", "--state-dir", str(self.coordinator_state), *common, *limit]
                arguments += ["--api-port", str(self.api_port), "--log-level", "debug"]
            else:
                arguments = ["agent", "--id", name, "--data", str(files[name]), *common, *limit]
                arguments += ["--state-dir", str(work / "vehicles")]
                # Answers that come one after the other, so that a fault can meet a round that is answered in part.
                arguments += ["--slow", f"{0.04 * index:.2f}"]
                arguments += ["--resend-first", "0.4", "--resend-longest", "2"]
            faults = work / f"{name}.faults.json"
            self.mischief[name] = MischiefFile(faults)
            own = {"GLASSFLEET_BROKER": url, VARIABLE: str(faults)}
            if self.office is not None:
                own["GLASSFLEET_IDENTITY"] = str(self.office.identity(name))
            self.processes.add(name, arguments, {**shared, **own})

    @property
    def coordinator_state(self) -> Path:
        """The coordinator's state folder."""
        return self.work / "coordinator"

    @property
    def api_url(self) -> str:
        """Where the coordinator's API is, in all its lives."""
        return f"http://127.0.0.1:{self.api_port}"

    # One process

    def start(self, name: str) -> None:
        """Start a process that does not run; a crash that was asked for and did not come is forgotten."""
        process = self.processes[name]
        if process.is_running:
            return
        if self.mischief[name].read().crash_at:
            self.mischief[name].change(crash_at=0)
        self.working.discard(name)
        process.start()

    def kill(self, name: str) -> None:
        """SIGKILL."""
        self.processes[name].kill()
        self.working.discard(name)

    def freeze(self, name: str) -> None:
        """SIGSTOP."""
        if name != BROKER:
            self.processes[name].freeze()
        elif self.broker.is_running:
            os.kill(self.broker.pid, signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        """SIGCONT."""
        if name != BROKER:
            self.processes[name].thaw()
        elif self.broker.is_running:
            os.kill(self.broker.pid, signal.SIGCONT)

    # The broker

    def start_broker(self) -> bool:
        """Start it on its port and what it saved; False when it runs."""
        if self.broker.is_running:
            return False
        began = time.monotonic()
        self.broker.start()
        self.recoveries["broker"].append(time.monotonic() - began)
        return True

    def revive_broker(self, patience: float) -> bool:
        """Start the broker again that died by itself, and let all connect to it again; False when it runs."""
        if self.broker.is_running:
            return False
        processes = self.processes.values()
        for process in processes:
            process.began = process.log_size()
        self.start_broker()
        end = time.monotonic() + patience
        while time.monotonic() < end and not all(map(_has_connected, processes)):
            time.sleep(0.05)
        return True

    # All

    def watch(self) -> list[str]:
        """Look for processes that work again, and return the names of those that ended by themselves."""
        ended = []
        for name, process in self.processes.items():
            if process.has_ended:
                self.working.discard(name)
                ended.append(name)
            elif process.is_running and name not in self.working and _has_connected(process):
                self.working.add(name)
                if process.lives > 1:
                    kind = COORDINATOR if name == COORDINATOR else "agent"
                    self.recoveries[kind].append(time.monotonic() - process.started_at)
        return ended

    def wait_until_all_work(self, patience: float) -> None:
        """Return when every process is connected; raises RunFailedError with the last words of one that is not."""
        end = time.monotonic() + patience
        while True:
            ended = self.watch()
            idle = [name for name in self.processes if name not in self.working]
            if not idle and not ended:
                return
            if ended or time.monotonic() > end:
                name = (ended or idle)[0]
                words = self.processes[name].last_words()
                raise RunFailedError(f"{name} is not connected after {patience:g} s: {words}")
            time.sleep(0.02)

    def end(self, names: Sequence[str], patience: float = 5.0) -> None:
        """End processes politely, then by force."""
        self.processes.end(names, patience)
        self.working.difference_update(names)

    def close(self) -> None:
        """End everything. Idempotent."""
        self.processes.end(patience=5.0)
        with contextlib.suppress(OSError):
            self.thaw(BROKER)
        self.broker.stop()
        self.proxy.close()


def _has_connected(process: Process) -> bool:
    """Whether a process said, in this life, that its connection stands."""
    with process.log.open("rb") as log:
        log.seek(process.began)
        return _CONNECTED in log.read()
