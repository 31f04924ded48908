"""Conducts the demonstration: starts the processes, lets a run happen to them, and gathers what came of it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from broker.launch import RunningBroker, launch
from glassfleet.memory import Memory
from qoe.demo.plan import Plan
from qoe.demo.processes import Family
from qoe.demo.reference import Verdict, judge
from qoe.demo.secure import Identities, secure_broker
from qoe.demo.vehicles import VehicleRows, read_rows
from schemas.errors import GlassfleetError, RunFailedError
from schemas.record import ModelRecord

FLEET, MODEL, COORDINATOR = "demo", "qoe", "coordinator"
POLL = 0.05
"""Seconds between looks at the run."""


class Api(Protocol):
    """What is needed of the coordinator's HTTP API."""

    def get(self, path: str) -> Any:
        """Return the JSON of a resource."""
        ...

    def post(self, path: str, body: Any = None) -> Any:
        """Ask for an action."""
        ...


class Watcher(Protocol):
    """Who looks on: a live display, or plain lines."""

    def say(self, line: str) -> None:
        """Take one line about what happened."""
        ...

    def look(self, status: Mapping[str, Any], vehicles: Mapping[str, str]) -> None:
        """Take the run as it stands, and what each vehicle's process is doing, in a word or two."""
        ...


@dataclass(frozen=True)
class Settings:
    """What is demonstrated.

    Attributes
    ----------
    files : mapping of str to Path
        Vehicle id -> its data.
    plan : Plan
    work : Path
        Folder for logs and state.
    scheme : str
    parameters : mapping
        Of the scheme, as the run is started with.
    participation : "cohort" or "elastic"
    deadline : float
        Seconds per round, > 0.
    pace : float
        Seconds that every vehicle takes to answer, so that people can watch and kills fall into open rounds.
    broker_kind : "auto", "embedded" or "mosquitto"
    bounds : mapping or None
        As the run's specification takes it: column -> [low, high], or an object with unit and terms too.
    target : str or None
    labels : bool
        The target is a class.
    memory : Memory or None
        Memory inputs of the run.
    seed : int
    timeout : float
        Seconds for the whole run.
    secure : bool
        Mutual TLS with certificates made for the occasion; needs Mosquitto.
    """

    files: Mapping[str, Path]
    plan: Plan
    work: Path
    scheme: str = "frt"
    parameters: Mapping[str, Any] = field(default_factory=dict)
    participation: str = "cohort"
    deadline: float = 2.5
    pace: float = 0.2
    broker_kind: str = "auto"
    bounds: Mapping[str, Any] | None = None
    target: str | None = None
    labels: bool = False
    memory: Memory | None = None
    seed: int = 0
    timeout: float = 300.0
    secure: bool = False

    @property
    def slowness(self) -> float:
        """Seconds that each answer of a slow vehicle is on its way: beyond every deadline."""
        return self.deadline + 0.4


@dataclass(frozen=True)
class Result:
    """What came of it.

    Attributes
    ----------
    status : dict
        The run as the coordinator's API shows it.
    record : ModelRecord
    rows : mapping of str to VehicleRows
    verdict : Verdict
    killed, returned : tuple of str
        What really happened, in the order of time.
    slow : tuple of str
    broker_kind : str
    seconds : float
        From opening the run to its end.
    """

    status: dict[str, Any]
    record: ModelRecord
    rows: Mapping[str, VehicleRows]
    verdict: Verdict
    killed: tuple[str, ...]
    returned: tuple[str, ...]
    slow: tuple[str, ...]
    broker_kind: str
    seconds: float


def conduct(settings: Settings, connect: Callable[[Path], Api], watcher: Watcher) -> Result:
    """Run the demonstration; all processes have ended when it returns or raises.

    Parameters
    ----------
    connect : callable
        Takes the coordinator's state folder, returns its API.

    Raises
    ------
    RunFailedError
        The run failed, or did not end within ``settings.timeout``.
    GlassfleetError
        A file, the broker or a process could not be used; the text says which and why.
    """
    # First of all: a vehicle whose file cannot be used is told before anything is started.
    rows = read_rows(settings.files, settings.target, labels=settings.labels, memory=settings.memory)
    with Family(settings.work / "logs") as family:
        identities: Identities | None = None
        broker: RunningBroker
        if settings.secure:
            broker, identities = secure_broker(settings.work, FLEET, COORDINATOR, list(settings.files))
        else:
            broker = launch(prefer=settings.broker_kind, state_dir=settings.work / "broker")
        try:
            watcher.say(f"broker: {broker.kind}, its own process, on loopback")
            if identities is not None:
                watcher.say(
                    f"secure: mutual TLS 1.3; {len(settings.files)} vehicles and the coordinator, each with its own"
                    " certificate, may write under their own names alone"
                )
            troupe = _Troupe(settings, family, broker.url, watcher, identities)
            # The coordinator first: beside fifteen starting vehicles it would come up last, and nothing could be seen.
            troupe.start_coordinator()
            api = troupe.wait_for_api(connect)
            for vehicle in settings.files:
                troupe.start_vehicle(vehicle)
            watcher.say(f"{len(settings.files)} vehicles started, each its own process; waiting until all are up")
            begun = time.monotonic()
            status = _follow(settings, api, troupe, watcher)
            seconds = time.monotonic() - begun
            record = _record(api, status)
        finally:
            family.end_all()
            broker.stop()
    watcher.say("learning the references: central (the cohort's rows, and all rows) and local (each vehicle alone)")
    return Result(
        status=status,
        record=record,
        rows=rows,
        verdict=judge(record, rows, settings.seed),
        killed=tuple(troupe.killed),
        returned=tuple(troupe.returned),
        slow=settings.plan.slow,
        broker_kind=broker.kind,
        seconds=seconds,
    )


class _Troupe:
    """The processes of one demonstration, and what the plan does to them."""

    def __init__(
        self, settings: Settings, family: Family, url: str, watcher: Watcher, identities: Identities | None = None
    ) -> None:
        self._settings = settings
        self._family = family
        self._watcher = watcher
        self._environment = {
            # In the environment and not among the arguments, which everybody on the machine can read.
            "GLASSFLEET_BROKER": url,
            "GLASSFLEET_FLEET": FLEET,
        }
        self._identities = identities
        self.killed: list[str] = []
        self.returned: list[str] = []

    def _environment_of(self, name: str) -> dict[str, str]:
        if self._identities is None:
            return self._environment
        return {**self._environment, "GLASSFLEET_IDENTITY": str(self._identities.of(name))}

    @property
    def _coordinator_state(self) -> Path:
        return self._settings.work / "coordinator"

    def start_coordinator(self) -> None:
        self._family.start(
            COORDINATOR,
            ["coordinator", "--state-dir", str(self._coordinator_state), "--api-port", "0"],
            self._environment_of(COORDINATOR),
        )

    def start_vehicle(self, vehicle: str) -> None:
        settings = self._settings
        arguments = ["agent", "--id", vehicle, "--data", str(settings.files[vehicle])]
        arguments += ["--state-dir", str(settings.work / "vehicles"), "--no-evaluate"]
        if settings.target is not None:
            arguments += ["--target", settings.target]
        if settings.labels:
            arguments.append("--labels")
        delay = settings.slowness if vehicle in settings.plan.slow else settings.pace
        if delay:
            arguments += ["--slow", str(delay)]
        self._family.start(vehicle, arguments, self._environment_of(vehicle))

    def wait_for_api(self, connect: Callable[[Path], Api], patience: float = 60.0) -> Api:
        end = time.monotonic() + patience
        note = self._coordinator_state / "api-url"
        while True:
            self._family.check(COORDINATOR)
            if note.exists():
                api = connect(self._coordinator_state)
                try:
                    api.get("/api/health")
                except GlassfleetError:
                    # Between the note and the first answer there is a moment.
                    if time.monotonic() > end:
                        raise
                else:
                    return api
            if time.monotonic() > end:
                raise RunFailedError(
                    f"the coordinator was not ready within {patience:g} s: {self._family.last_words(COORDINATOR)}"
                )
            time.sleep(POLL)

    def play(self, opened: int) -> None:
        """Do what the plan says for the moment when `opened` rounds have been opened."""
        plan = self._settings.plan
        for vehicle, moment in plan.kills.items():
            if opened >= moment and vehicle not in self.killed:
                self._family.kill(vehicle)
                self.killed.append(vehicle)
                self._watcher.say(f"{vehicle} is killed (SIGKILL)")
        for vehicle, moment in plan.returns.items():
            if opened >= moment and vehicle in self.killed and vehicle not in self.returned:
                self.start_vehicle(vehicle)
                self.returned.append(vehicle)
                self._watcher.say(f"{vehicle} comes back")

    def check(self) -> None:
        """Raise when a process ended that nobody killed."""
        self._family.check(COORDINATOR)
        for vehicle in self._settings.files:
            if vehicle not in self.killed or vehicle in self.returned:
                self._family.check(vehicle)

    def conditions(self) -> dict[str, str]:
        """Say what each vehicle's process is doing."""
        words: dict[str, str] = {}
        for vehicle in self._settings.files:
            if vehicle in self.returned:
                words[vehicle] = "came back"
            elif vehicle in self.killed:
                words[vehicle] = "killed"
            elif vehicle in self._settings.plan.slow:
                words[vehicle] = "slow"
            else:
                words[vehicle] = "up"
        return words


def specification(settings: Settings) -> dict[str, Any]:
    """Return the run's specification as the coordinator's API takes it."""
    vehicles = len(settings.files)
    return {
        "scheme": settings.scheme,
        "parameters": dict(settings.parameters),
        "participation": settings.participation,
        "policy": {
            "min_agents": min(2, vehicles),
            "deadline": settings.deadline,
            "gather_agents": vehicles,
            "gather_timeout": 90.0,
            # Each vehicle that is lost may send the growth back once.
            "max_restarts": 2 * vehicles,
        },
        "model": MODEL,
        "bounds": None if settings.bounds is None else dict(settings.bounds),
        "memory": None if settings.memory is None else settings.memory.to_document(),
        "seed": settings.seed,
    }


def _follow(settings: Settings, api: Api, troupe: _Troupe, watcher: Watcher) -> dict[str, Any]:
    run = str(api.post("/api/runs", specification(settings))["run"])
    end = time.monotonic() + settings.timeout
    while True:
        status: dict[str, Any] = api.get(f"/api/runs/{run}")
        watcher.look(status, troupe.conditions())
        if status["state"] == "ended":
            break
        troupe.play(len(status["rounds"]) + (status.get("open") is not None))
        troupe.check()
        if time.monotonic() > end:
            raise RunFailedError(
                f"the run did not end within {settings.timeout:g} s (--timeout); it was {status['phase']}"
            )
        time.sleep(POLL)
    if status["outcome"] != "finished":
        raise RunFailedError(f"the run {status['outcome']}: {status['reason']}")
    if status["model"] is None:
        raise RunFailedError("the run finished, but its model could not be published: the coordinator's log says why")
    return status


def _record(api: Api, status: Mapping[str, Any]) -> ModelRecord:
    """Return the published record, its digest verified."""
    made = status["model"]
    answer = api.get(f"/api/models/{made['name']}/{made['version']}")
    return ModelRecord.load(json.dumps(answer).encode())
