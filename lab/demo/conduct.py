"""Conducts the demonstration: starts the processes, lets a run happen to them, and gathers what came of it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from console.client import CoordinatorClient
from edge_agent.session.snapshots import condense_key
from edge_agent.sources import Source
from edge_agent.storage import load_secret
from lab.demo.display import Watcher
from lab.demo.fleet import FLEET, POLL, Fleet
from lab.demo.options import Settings
from lab.demo.reference import Verdict, judge
from lab.demo.vehicles import read_rows
from lab.processes import ProcessFleet
from schemas.errors import GlassfleetError, RunFailedError
from schemas.record import ModelRecord


@dataclass(frozen=True)
class Result:
    """What came of it.

    Attributes
    ----------
    status : dict
        The run as the coordinator's API shows it.
    record : ModelRecord
    rows : mapping of str to Source
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
    rows: Mapping[str, Source]
    verdict: Verdict
    killed: tuple[str, ...]
    returned: tuple[str, ...]
    slow: tuple[str, ...]
    broker_kind: str
    seconds: float


TIMEOUT = 300.0
"""Seconds that the run may take."""

Stay = Callable[[Result | RunFailedError, Fleet], None]
"""Is shown what came of a run while all processes are up; they are ended when it returns."""


def conduct(settings: Settings, watcher: Watcher, stay: Stay | None = None) -> Result:
    """Run the demonstration; all processes have ended when it returns or raises.

    Parameters
    ----------
    stay : callable or None
        Is given the result, or the named end of a run that failed, with everything up; see `Stay`.

    Raises
    ------
    RunFailedError
        The run failed, or did not end within `TIMEOUT`.
    GlassfleetError
        A file, the broker or a process could not be used; the text says which and why.
    """
    # First of all: a vehicle whose file cannot be used is told before anything is started.
    rows = read_rows(settings.files, settings.spec.target, labels=settings.labels)
    with ProcessFleet(settings.work / "logs") as processes:
        fleet = Fleet(settings, processes, watcher)
        try:
            api = _set_the_stage(settings, fleet, watcher)
            begun = time.monotonic()
            try:
                status = _follow(settings, api, fleet, watcher)
            except RunFailedError as fault:
                if stay is not None:
                    stay(fault, fleet)
                raise
            seconds = time.monotonic() - begun
            record = _record(api, status)
            _await_gate(api, record, watcher)
            watcher.step("learning references: central (cohort, all rows), local (each alone)")
            with_keys = _with_keys(rows, settings.work / "vehicles" / "agents", record.cohort)
            result = Result(
                status=status,
                record=record,
                rows=rows,
                verdict=judge(record, with_keys, settings.options.seed),
                killed=tuple(fleet.killed),
                returned=tuple(fleet.returned),
                slow=settings.plan.slow,
                broker_kind=fleet.broker_kind,
                seconds=seconds,
            )
            if stay is not None:
                stay(result, fleet)
        except GlassfleetError:
            # Broker or coordinator that ended are the reason, and say it better.
            fleet.check_services()
            raise
        except KeyboardInterrupt:
            watcher.say("interrupted: stopping vehicles, coordinator and broker")
            raise
        finally:
            processes.end()
            fleet.stop_broker()
    return result


def _set_the_stage(settings: Settings, fleet: Fleet, watcher: Watcher) -> CoordinatorClient:
    watcher.step("starting the broker")
    fleet.start_broker()
    watcher.say(f"broker: {fleet.broker_kind}, its own process, on loopback")
    if settings.options.secure:
        watcher.say(
            f"secure: mutual TLS 1.3; {len(settings.files)} vehicles and the coordinator, each with its own"
            " certificate, may write under their own names alone"
        )
    # The coordinator first: beside fifteen starting vehicles it would come up last, and nothing could be seen.
    watcher.step("starting the coordinator")
    api = fleet.start_coordinator()
    watcher.serve(fleet.address)
    watcher.step(f"starting {len(settings.files)} vehicles, one process each; waiting until all are up")
    for vehicle in settings.files:
        fleet.start_vehicle(vehicle)
    return api


def _follow(settings: Settings, api: CoordinatorClient, fleet: Fleet, watcher: Watcher) -> dict[str, Any]:
    run = str(api.post("/api/runs", settings.spec.to_document())["run"])
    end = time.monotonic() + TIMEOUT
    while True:
        status: dict[str, Any] = api.get(f"/api/runs/{run}")
        if status["phase"] == "gathering":
            fleet.call_the_roll(api)
        else:
            fleet.all_are_up()
        watcher.look(status, fleet.conditions())
        if status["state"] == "ended":
            break
        fleet.play(len(status["rounds"]) + (status.get("open") is not None))
        fleet.check_services()
        for ended in fleet.ended():
            raise ended
        if time.monotonic() > end:
            raise RunFailedError(f"the run did not end within {TIMEOUT:g} s; it was {status['phase']}")
        time.sleep(POLL)
    if status["outcome"] != "finished":
        raise RunFailedError(f"the run {status['outcome']}: {status['reason']}")
    if status["model"] is None:
        raise RunFailedError("the run finished, but its model could not be published: the coordinator's log says why")
    return status


def _await_gate(api: CoordinatorClient, record: ModelRecord, watcher: Watcher) -> None:
    """Wait until the vehicles have scored the model: it is current then, or a candidate. Two minutes at most."""
    watcher.step("the vehicles score the model before it becomes current")
    while True:
        tried = [each for each in api.get(f"/api/rollouts/{record.name}") if each["version"] == record.version]
        if not tried:
            return  # personal models are not judged by others
        if tried[-1]["ended"] is not None:
            became = "is current" if tried[-1]["phase"] == "promoted" else "stays a candidate"
            watcher.say(f"model {record.name} v{record.version} {became}: {tried[-1]['reason']}")
            return
        time.sleep(POLL)


def _record(api: CoordinatorClient, status: Mapping[str, Any]) -> ModelRecord:
    """Return the published record, its digest verified."""
    made = status["model"]
    answer = api.get(f"/api/models/{made['name']}/{made['version']}")
    return ModelRecord.load(json.dumps(answer).encode())


def _with_keys(rows: Mapping[str, Source], agents: Path, cohort: Sequence[str]) -> dict[str, Source]:
    """Return the rows with the keys by which the vehicles of the cohort condensed theirs, all on this machine."""
    keys = {vehicle: condense_key(load_secret(agents / FLEET / vehicle)) for vehicle in cohort}
    return {
        vehicle: replace(each, train=replace(each.train, key=keys.get(vehicle, b""))) for vehicle, each in rows.items()
    }
