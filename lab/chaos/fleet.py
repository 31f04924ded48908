"""The processes under test: started, killed, frozen, and never left behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from broker.servers.child import ChildBroker
from broker.servers.launch import launch
from broker.servers.process import die_with_parent, free_port
from broker.url import parse_url
from lab.chaos.certificate_office import Office
from lab.chaos.faulty_transport import VARIABLE, MischiefFile
from lab.chaos.proxy import Proxy
from lab.chaos.schedule import BROKER, COORDINATOR
from schemas.errors import RunFailedError

_CONNECTED = b'"event": "connected"'
"""What coordinator and agents log when a connection stands."""

FLEET = "chaos"


@dataclass
class Child:
    """One process, over its lives.

    Attributes
    ----------
    arguments : sequence of str
        Of the ``glassfleet`` command.
    environment : mapping
    log : Path
    mischief : MischiefFile
    """

    arguments: Sequence[str]
    environment: Mapping[str, str]
    log: Path
    mischief: MischiefFile
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    offset: int = 0
    is_frozen: bool = False
    is_working: bool = False
    lives: int = 0
    ends: list[int] = field(default_factory=list)
    """Exit codes of lives that ended without having been killed."""


class Troupe:
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
        self.children: dict[str, Child] = {}
        self.office = Office(work, FLEET, COORDINATOR, list(files)) if secure else None
        self.broker: ChildBroker = (
            launch(prefer=broker_kind, state_dir=work / "broker") if self.office is None else self.office.broker
        )
        address = parse_url(self.broker.url)
        self.proxy = Proxy(address.host, address.port)
        (work / "logs").mkdir(parents=True, exist_ok=True)
        self.api_port = free_port()
        shared = {"GLASSFLEET_FLEET": FLEET, "GLASSFLEET_LOG_FORMAT": "json", "PYTHONUNBUFFERED": "1"}
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
            mischief = MischiefFile(work / f"{name}.faults.json")
            own = {"GLASSFLEET_BROKER": url, VARIABLE: str(work / f"{name}.faults.json")}
            if self.office is not None:
                own["GLASSFLEET_IDENTITY"] = str(self.office.identity(name))
            self.children[name] = Child(
                arguments,
                {**os.environ, **shared, **own},
                work / "logs" / f"{name}.log",
                mischief,
            )

    @property
    def coordinator_state(self) -> Path:
        """The coordinator's state folder."""
        return self.work / "coordinator"

    @property
    def api_url(self) -> str:
        """Where the coordinator's API is, in all its lives."""
        return f"http://127.0.0.1:{self.api_port}"

    def log_size(self, name: str) -> int:
        """Bytes of a process's log so far."""
        path = self.children[name].log
        return path.stat().st_size if path.exists() else 0

    # One process

    def start(self, name: str) -> None:
        """Start a process that does not run; a crash that was asked for and did not come is forgotten."""
        child = self.children[name]
        if self.is_running(name):
            return
        if child.mischief.read().crash_at:
            child.mischief.change(crash_at=0)
        with child.log.open("ab") as log:
            child.offset = log.tell()
            child.process = subprocess.Popen(  # noqa: S603 - our own program, no shell
                [sys.executable, "-m", "lab.chaos.child", *child.arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=dict(child.environment),
                preexec_fn=die_with_parent(),  # noqa: PLW1509 - calls one C function looked up beforehand
            )
        child.started_at, child.is_working, child.is_frozen = time.monotonic(), False, False
        child.lives += 1

    def is_running(self, name: str) -> bool:
        """Whether a process runs now (a frozen one does)."""
        process = self.children[name].process
        return process is not None and process.poll() is None

    def kill(self, name: str) -> None:
        """SIGKILL."""
        child = self.children[name]
        if child.process is not None and child.process.poll() is None:
            child.process.kill()
        self.bury(name)

    def bury(self, name: str) -> int | None:
        """Take note of a process's end; return its exit code."""
        child = self.children[name]
        if child.process is None:
            return None
        code = child.process.wait()
        child.process, child.is_frozen, child.is_working = None, False, False
        return code

    def freeze(self, name: str) -> None:
        """SIGSTOP."""
        pid = self._pid(name)
        if pid:
            os.kill(pid, signal.SIGSTOP)
            if name != BROKER:
                self.children[name].is_frozen = True

    def thaw(self, name: str) -> None:
        """SIGCONT."""
        pid = self._pid(name)
        if pid:
            os.kill(pid, signal.SIGCONT)
            if name != BROKER:
                self.children[name].is_frozen = False

    def _pid(self, name: str) -> int:
        if name == BROKER:
            return self.broker.pid if self.broker.is_running else 0
        process = self.children[name].process
        return process.pid if process is not None and process.poll() is None else 0

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
        for name, child in self.children.items():
            child.offset = self.log_size(name)
        self.start_broker()
        end = time.monotonic() + patience
        while time.monotonic() < end and not all(map(self._has_connected, self.children.values())):
            time.sleep(0.05)
        return True

    # All

    def watch(self) -> list[str]:
        """Look for processes that work again, and return the names of those that ended by themselves."""
        ended = []
        for name, child in self.children.items():
            if child.process is None:
                continue
            if child.process.poll() is not None:
                ended.append(name)
            elif not child.is_working and self._has_connected(child):
                child.is_working = True
                if child.lives > 1:
                    kind = COORDINATOR if name == COORDINATOR else "agent"
                    self.recoveries[kind].append(time.monotonic() - child.started_at)
        return ended

    @staticmethod
    def _has_connected(child: Child) -> bool:
        with child.log.open("rb") as log:
            log.seek(child.offset)
            return _CONNECTED in log.read()

    def wait_until_all_work(self, patience: float) -> None:
        """Return when every process is connected; raises RunFailedError with the last words of one that is not."""
        end = time.monotonic() + patience
        while True:
            ended = self.watch()
            idle = [name for name, child in self.children.items() if not child.is_working]
            if not idle and not ended:
                return
            if ended or time.monotonic() > end:
                name = (ended or idle)[0]
                raise RunFailedError(f"{name} is not connected after {patience:g} s: {self.last_words(name)}")
            time.sleep(0.02)

    def last_words(self, name: str) -> str:
        """Return the end of a process's log."""
        try:
            lines = self.children[name].log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        except OSError:
            return "(no log)"
        return (lines or ["(it said nothing)"])[-1][:400]

    def end(self, names: Sequence[str], patience: float = 5.0) -> None:
        """End processes politely, then by force."""
        for name in names:
            self.thaw(name)
            if self.is_running(name):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._pid(name), signal.SIGTERM)
        end = time.monotonic() + patience
        for name in names:
            child = self.children[name]
            if child.process is None:
                continue
            try:
                child.process.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                child.process.kill()
            child.ends.append(self.bury(name) or 0)

    def close(self) -> None:
        """End everything. Idempotent."""
        self.end(list(self.children))
        with contextlib.suppress(OSError):
            self.thaw(BROKER)
        self.broker.stop()
        self.proxy.close()
