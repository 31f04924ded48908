"""The fleet under test: broker, coordinator and agents, whose processes and connections faults are done to."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from broker.servers.launch import launch
from broker.servers.process import ChildBroker, free_port
from broker.url import parse_url
from lab.chaos.certificate_office import CertificateOffice
from lab.chaos.faulty_transport import VARIABLE, MischiefFile
from lab.chaos.proxy import Proxy
from lab.chaos.schedule import BROKER, COORDINATOR, STANDBY
from lab.processes import ProcessFleet, read_lines
from schemas.errors import RunFailedError

_CONNECTED = '"event": "connected"'
"""What coordinator and agents log when a connection stands."""

_STANDS_BY = '"event": "standing-by"'
_LEADS = '"event": "coordinator-up"'
"""What a coordinator logs when another one has the journal, and when it has."""

FLEET = "chaos"

WORKERS = 2
STARTED, ENDED = "intake-worker-started", "intake-worker-ended"
"""What a coordinator logs of its intake workers."""


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
    modes : collection of str
        ``secure``: mutual TLS, everybody with an identity, every message signed; needs Mosquitto. ``standby``: two
        coordinators on one journal. ``workers``: the coordinator has two intake workers.

    Attributes
    ----------
    leader : str
        Which coordinator leads, or did last, as far as `watch` has seen.
    """

    def __init__(
        self,
        work: Path,
        files: Mapping[str, Path],
        broker_kind: str,
        limits: Mapping[str, int],
        modes: Collection[str] = frozenset(),
    ) -> None:
        self.work = work
        self.coordinators = (COORDINATOR, STANDBY) if "standby" in modes else (COORDINATOR,)
        self.recoveries: dict[str, list[float]] = {"coordinator": [], "take-over": [], "agent": [], "broker": []}
        self.leader = COORDINATOR
        self._lost_at = 0.0
        self._is_taken_over = False
        self.processes = ProcessFleet(work / "logs")
        self.mischief: dict[str, MischiefFile] = {}
        self.working: set[str] = set()
        """Which processes are connected, as far as `watch` has seen."""
        self._frozen_workers: set[int] = set()
        count = WORKERS if "workers" in modes else 1
        self.office = CertificateOffice(work, FLEET, COORDINATOR, list(files), count) if "secure" in modes else None
        self.broker: ChildBroker = (
            launch(prefer=broker_kind, state_dir=work / "broker") if self.office is None else self.office.broker
        )
        address = parse_url(self.broker.url)
        self.proxy = Proxy(address.host, address.port)
        self._api_ports = {name: free_port() for name in self.coordinators}
        shared = {"GLASSFLEET_FLEET": FLEET, "GLASSFLEET_LOG_FORMAT": "json"}
        shared |= {"GLASSFLEET_KEEPALIVE": "3", "GLASSFLEET_CONNECT_TIMEOUT": "2", "GLASSFLEET_BROKER_WAIT": "0"}
        shared |= {"GLASSFLEET_COORDINATOR_INTAKE_WORKERS": str(count)}
        shared |= {"GLASSFLEET_AGENT_RESEND_FIRST": "0.4", "GLASSFLEET_AGENT_RESEND_LONGEST": "2"}
        for index, name in enumerate((*self.coordinators, *files), 1 - len(self.coordinators)):
            url = replace(address, port=self.proxy.open(name)).url
            limit = str(limits[COORDINATOR if name == STANDBY else name])
            if name in self.coordinators:
                arguments = ["coordinator", "--state-dir", str(self.coordinator_state)]
                arguments += ["--api-port", str(self._api_ports[name]), "--log-level", "debug"]
                arguments += ["--standby"] * ("standby" in modes)
            else:
                arguments = ["agent", "--id", name, "--data", str(files[name])]
                arguments += ["--state-dir", str(work / "vehicles")]
                # Answers that come one after the other, so that a fault can meet a round that is answered in part.
                arguments += ["--slow", f"{0.04 * index:.2f}"]
            faults = work / f"{name}.faults.json"
            self.mischief[name] = MischiefFile(faults)
            own = {"GLASSFLEET_BROKER": url, "GLASSFLEET_MAX_MESSAGE_BYTES": limit, VARIABLE: str(faults)}
            if self.office is not None:
                own["GLASSFLEET_IDENTITY"] = str(self.office.identity(COORDINATOR if name == STANDBY else name))
            self.processes.add(name, arguments, {**shared, **own}, (sys.executable, "-m", "lab.chaos.child"))

    @property
    def coordinator_state(self) -> Path:
        """The coordinator's state folder."""
        return self.work / "coordinator"

    @property
    def api_url(self) -> str:
        """Where the API of the coordinator is that leads."""
        return f"http://127.0.0.1:{self._api_ports[self.leader]}"

    def named(self, target: str) -> str:
        """Return the process that a fault is meant for: which coordinator leads now, and which stands by."""
        if target not in (COORDINATOR, STANDBY) or len(self.coordinators) == 1:
            return target
        return next(name for name in self.coordinators if (name == self.leader) == (target == COORDINATOR))

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
        if name == self.leader:
            self._lost_at = time.monotonic()
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

    def signal_worker(self, worker: int, number: int) -> None:
        """Send a signal to an intake worker of the coordinator, from 1, if there is one now."""
        process = self.processes[self.leader]
        lines = read_lines(process.log, process.began)
        pids = [each["pid"] for each in lines if each.get("event") == STARTED and each["worker"] == worker]
        ended = [each["pid"] for each in lines if each.get("event") == ENDED]
        if process.is_running and pids and pids[-1] not in ended:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pids[-1], number)
                if number == signal.SIGSTOP:
                    self._frozen_workers.add(pids[-1])

    def thaw_workers(self) -> None:
        """Let the intake workers go on that were stopped, if they live: they may be of a coordinator that is gone."""
        while self._frozen_workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._frozen_workers.pop(), signal.SIGCONT)

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
        while time.monotonic() < end and not all(_CONNECTED in process.logged() for process in processes):
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
                if name == self.leader:
                    self._lost_at = time.monotonic()
            elif process.is_running and name not in self.working and self._works(name):
                self.working.add(name)
                if name == self.leader and self._is_taken_over:
                    self._is_taken_over = False
                    self.recoveries["take-over"].append(time.monotonic() - self._lost_at)
                elif process.lives > 1 and name != self.named(STANDBY):
                    kind = COORDINATOR if name == self.leader else "agent"
                    self.recoveries[kind].append(time.monotonic() - process.started_at)
        for name in self.coordinators:
            if self._leads(name) and not self._leads(self.leader):
                self.leader, self._is_taken_over = name, self._lost_at > 0
                self.working.difference_update(self.coordinators)
        return ended

    def _works(self, name: str) -> bool:
        return (_STANDS_BY if name == self.named(STANDBY) else _CONNECTED) in self.processes[name].logged()

    def _leads(self, name: str) -> bool:
        return self.processes[name].is_running and _LEADS in self.processes[name].logged()

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
        self.thaw_workers()
        self.processes.end(patience=5.0)
        with contextlib.suppress(OSError):
            self.thaw(BROKER)
        self.broker.stop()
        self.proxy.close()


# --- the rows of the vehicles under test ------------------------------------------------------------------------------


def write_data(folder: Path, vehicles: int, seed: int) -> dict[str, Path]:
    """Write small files of rows, one per vehicle, a fifth of them for tests; return them by agent id."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {}
    for number in range(vehicles):
        rng = np.random.default_rng([seed, number])
        rows = 250 + 40 * number
        X = rng.uniform(0.0, 10.0 + number, (rows, 4))
        y = X[:, 0] * 0.7 + np.where(X[:, 1] > 5, 4.0, 0.0) + np.sin(X[:, 2]) + rng.normal(0, 0.1, rows)
        name = f"vehicle-{number:02d}"
        files[name] = folder / f"{name}.csv"
        lines = ["speed,load,turn,noise,quality,split"]
        for place, (row, target) in enumerate(zip(X, y, strict=True)):
            values = ",".join(repr(float(value)) for value in (*row, target))
            lines.append(f"{values},{'test' if place % 5 == 0 else 'train'}")
        files[name].write_text("\n".join(lines) + "\n", encoding="utf-8")
    return files
