"""The fleet of one demonstration - broker, coordinator, vehicles - and what the plan does to it."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from pathlib import Path

from broker.servers.launch import launch
from broker.servers.process import ChildBroker, write_private
from console.client import CoordinatorClient
from lab.demo.display import Watcher
from lab.demo.options import Settings
from lab.demo.secure import secure_broker
from lab.processes import ProcessError, ProcessFleet, api_of
from schemas.errors import BrokerError

FLEET, COORDINATOR, OPERATOR = "demo", "coordinator", "demo-operator"

POLL = 0.05
"""Seconds between looks at the run."""

ROLL_CALL = 0.25
"""Seconds between looks at who is up, while the fleet gathers."""


class Fleet:
    """Broker, coordinator and vehicles of one demonstration.

    Parameters
    ----------
    settings : Settings
    processes : ProcessFleet
        Where coordinator and vehicles are started.
    watcher : Watcher

    Attributes
    ----------
    address : str
        The dashboard's, once the coordinator is up.
    killed, returned : list of str
        What really happened to vehicles, in the order of time.
    """

    def __init__(self, settings: Settings, processes: ProcessFleet, watcher: Watcher) -> None:
        self._settings = settings
        self._processes = processes
        self._watcher = watcher
        self._broker: ChildBroker | None = None
        self._identities: Path | None = None
        self._environment: dict[str, str] = {}
        self._up: set[str] = set()
        self._called = 0.0
        self.address = ""
        self.killed: list[str] = []
        self.returned: list[str] = []

    @property
    def broker_kind(self) -> str:
        """Which program the broker is."""
        return "" if self._broker is None else self._broker.kind

    @property
    def _coordinator_state(self) -> Path:
        return self._settings.work / COORDINATOR

    def start_broker(self) -> None:
        """Start the broker and wait until it answers; raises BrokerError when it does not."""
        settings = self._settings
        if settings.options.secure:
            self._broker, self._identities = secure_broker(
                settings.work, FLEET, COORDINATOR, list(settings.files), [OPERATOR]
            )
        else:
            self._broker = launch(prefer=settings.options.kind, state_dir=settings.work / "broker")
        # In the environment and not among the arguments, which everybody on the machine can read.
        self._environment = {"GLASSFLEET_BROKER": self._broker.url, "GLASSFLEET_FLEET": FLEET}

    def write_environment(self) -> Path:
        """Write what a reader's commands need to find this fleet, for ``source``; return the file."""
        variables = {**self._environment_of(OPERATOR), "GLASSFLEET_STATE_DIR": str(self._coordinator_state)}
        path = self._settings.work / "environment"
        write_private(
            path, "".join(f"export {name}={shlex.quote(value)}\n" for name, value in sorted(variables.items()))
        )
        return path

    def stop_broker(self) -> None:
        """End the broker. Idempotent."""
        if self._broker is not None:
            self._broker.stop()

    def start_coordinator(self) -> CoordinatorClient:
        """Start the coordinator, on a free port of loopback; return its API once it answers."""
        arguments = ["coordinator", "--state-dir", str(self._coordinator_state), "--api-port", "0"]
        process = self._processes.add(COORDINATOR, arguments, self._environment_of(COORDINATOR))
        process.start()
        api = api_of(process, self._coordinator_state, self.check_services)
        self.address = f"{api.url}/"
        return api

    def start_vehicle(self, vehicle: str) -> None:
        """Start a vehicle's agent."""
        settings = self._settings
        arguments = ["agent", "--id", vehicle, "--data", str(settings.files[vehicle])]
        arguments += ["--state-dir", str(settings.work / "vehicles")]
        if settings.spec.target is not None:
            arguments += ["--target", settings.spec.target]
        if settings.labels:
            arguments.append("--labels")
        delay = settings.slowness if vehicle in settings.plan.slow else settings.pace
        if delay:
            arguments += ["--slow", str(delay)]
        self._processes.add(vehicle, arguments, self._environment_of(vehicle)).start()

    def play(self, opened: int) -> None:
        """Do what the plan says for the moment when `opened` rounds have been opened."""
        plan = self._settings.plan
        for vehicle, moment in plan.kills.items():
            if opened >= moment and vehicle not in self.killed:
                self._processes[vehicle].kill()
                self.killed.append(vehicle)
                self._watcher.say(f"{vehicle} is killed (SIGKILL)")
        for vehicle, moment in plan.returns.items():
            if opened >= moment and vehicle in self.killed and vehicle not in self.returned:
                self._processes[vehicle].start()
                self.returned.append(vehicle)
                self._watcher.say(f"{vehicle} comes back")

    def call_the_roll(self, api: CoordinatorClient) -> None:
        """Take note of which vehicles are up, not more often than every `ROLL_CALL` seconds."""
        if time.monotonic() >= self._called + ROLL_CALL and len(self._up) < len(self._settings.files):
            self._up = {each["agent"] for each in api.get("/api/agents") if each["status"] == "up"}
            self._called = time.monotonic()

    def all_are_up(self) -> None:
        """Take note that the coordinator waits for nobody any more."""
        self._up = set(self._settings.files)

    def check_services(self) -> None:
        """Raise when broker or coordinator ended."""
        if self._broker is not None and not self._broker.is_running:
            raise BrokerError(
                f"the broker ({self._broker.kind}) ended by itself, or was killed; its log is in "
                f"{self._settings.work / 'broker'} (with --keep DIR it stays)"
            )
        self._processes[COORDINATOR].check()

    def ended(self) -> Iterator[ProcessError]:
        """Yield a fault, to raise or to tell, for each vehicle that has ended although nobody killed it."""
        for vehicle in self._settings.files:
            if vehicle not in self.killed or vehicle in self.returned:
                try:
                    self._processes[vehicle].check()
                except ProcessError as fault:
                    yield fault

    def conditions(self) -> dict[str, str]:
        """Say what each vehicle's process is doing: ``starting``, ``up``, ``slow``, ``killed`` or ``came back``."""
        files, slow = self._settings.files, self._settings.plan.slow
        up = {vehicle: "slow" if vehicle in slow else "up" for vehicle in files if vehicle in self._up}
        gone = dict.fromkeys(self.killed, "killed") | dict.fromkeys(self.returned, "came back")
        return dict.fromkeys(files, "starting") | up | gone

    def _environment_of(self, name: str) -> dict[str, str]:
        if self._identities is None:
            return self._environment
        return {**self._environment, "GLASSFLEET_IDENTITY": str(self._identities / name)}
