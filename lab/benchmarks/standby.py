"""How long a fleet is without a coordinator when the one that leads is killed and another one stands by."""

from __future__ import annotations

import random
import tempfile
import threading
import time
from collections import Counter
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Self

import httpx
import numpy as np

from broker.paho_transport import PahoTransport
from broker.port import Handlers, Link, Message
from broker.servers.launch import launch
from console.client import CoordinatorClient, CoordinatorError
from coordinator.engine import Answer
from coordinator.engine.events import from_value
from coordinator.journal import Entry
from coordinator.journal.inspect import entries, runs
from coordinator.telemetry import logs
from edge_agent.sources import Source
from glassfleet.data.dataset import Dataset
from lab.benchmarks.measure import print_table, wait
from lab.benchmarks.wire import is_equal
from lab.fleet import Fleet
from lab.processes import ProcessFleet
from schemas import codec
from schemas.envelope import Envelope
from schemas.messages import CoordinatorState, Receipt
from schemas.topics import Topics

KILLS, VEHICLES, ROWS = 50, 15, 200
TOPICS = Topics("fleet")
PATIENCE = 60.0
READY = '"event": "standing-by"'
_until = partial(wait, pause=0.05, patience=PATIENCE)


def standby(journal: str = "") -> None:
    """Kill the coordinator that leads again and again, in the middle of runs; print how long until a run goes on.

    Parameters
    ----------
    journal : str
        URL of an empty database for both; empty: an SQLite file.
    """
    logs.configure("error", "console")
    with tempfile.TemporaryDirectory(prefix="glassfleet-bench-") as name, _Pair(Path(name), journal) as pair:
        seconds = [pair.kill_leader() for _ in range(KILLS)]
        header = ["journal", "until its place is taken, p50", "p95", "until a run goes on, p50", "p95", "most"]
        print_table(
            f"The coordinator that leads is killed {KILLS} times, {VEHICLES} vehicles, one stands by (s)",
            [*header, "runs finished", "equal", "answers", "lost", "doubled"],
            [[journal.partition(":")[0] or "sqlite", *_figures(seconds), *pair.audit()]],
        )


def _figures(seconds: list[tuple[float, float]]) -> list[str]:
    taken, going = (sorted(column) for column in zip(*seconds, strict=True))
    numbers = [median(taken), _at_95(taken), median(going), _at_95(going), going[-1]]
    return [f"{number:.2f}" for number in numbers]


def _at_95(values: list[float]) -> float:
    return quantiles(values, n=20, method="inclusive")[-1] if len(values) > 1 else values[0]


class _Pair:
    """A fleet with two coordinators, which learns all the time."""

    def __init__(self, folder: Path, journal: str) -> None:
        self._journal = journal or f"sqlite:///{folder / 'journal.sqlite'}"
        self._broker = launch("mosquitto", state_dir=folder / "broker")
        self._watch = _Watch(self._broker.url)
        self._processes = ProcessFleet(folder / "logs")
        self._rng = random.Random(1)
        self._runs = 0
        environment = {"GLASSFLEET_BROKER": self._broker.url, "GLASSFLEET_LOG_FORMAT": "json"}
        self._apis: dict[str, CoordinatorClient] = {}
        for name in ("one", "two"):
            state = folder / name
            arguments = ["coordinator", "--standby", "--state-dir", str(state), "--journal", self._journal]
            self._processes.add(name, arguments, environment)
            self._apis[name] = CoordinatorClient(None, None, state)
        self._sources = {f"v{number:02d}": _source(number) for number in range(VEHICLES)}
        self._fleet = Fleet(self._sources, broker=self._broker.url, state_dir=folder / "agents", slow=0.3)
        self._leader, self._other = "one", "two"

    def __enter__(self) -> Self:
        self._processes[self._leader].start()
        _until(lambda: self._watch.leader != "")
        self._fleet.start()
        self._stand_by()
        return self

    def __exit__(self, *_: object) -> None:
        self._fleet.stop()
        self._watch.transport.stop()
        self._processes.end()
        self._broker.stop()

    def _stand_by(self) -> None:
        process = self._processes[self._other]
        process.start()

        def stands_by() -> bool:
            process.check()
            return READY in process.logged()

        _until(stands_by)

    def kill_leader(self) -> tuple[float, float]:
        """Return the seconds from the kill until another is up, and until it has accepted an answer."""
        self._learn()
        time.sleep(self._rng.uniform(0.0, 0.6))
        former = self._watch.leader
        begun = time.monotonic()
        self._processes[self._leader].kill()
        _until(lambda: self._watch.leader not in ("", former), pause=0.005)
        taken = self._watch.up_at - begun
        _until(lambda: self._watch.accepted_at > self._watch.up_at, pause=0.005)
        going = self._watch.accepted_at - begun
        self._leader, self._other = self._other, self._leader
        self._stand_by()
        return taken, going

    def _learn(self) -> None:
        """Wait until a run has its first or second round behind it, and some before it; start one if there is none."""
        while True:
            try:
                api = self._apis[self._leader]
                api.look_again()
                going = [each["run"] for each in api.get("/api/runs") if each["state"] == "running"]
                if not going:
                    self._runs += 1
                    api.post("/api/runs", {"run": f"bench-{self._runs}", **SPEC})
                elif 0 < len(api.run(going[0])["rounds"]) < 3:
                    return
            except (CoordinatorError, httpx.HTTPError):
                pass
            time.sleep(0.05)

    def audit(self) -> list[Any]:
        """Return runs that finished, how many equal the central model, answers, lost and doubled ones."""
        api = self._apis[self._leader]
        _until(lambda: all(each["state"] == "ended" for each in api.get("/api/runs")))
        records = [api.run(each["run"]) for each in api.get("/api/runs")]
        in_journal = Counter(_key(each) for run in runs(self._journal) for each in entries(self._journal, run))
        del in_journal[None]
        accepted = self._watch.accepted
        return [
            f"{sum(record['outcome'] == 'finished' for record in records)} of {len(records)}",
            sum(
                record["outcome"] == "finished" and is_equal(record, lambda agent: self._sources[agent].train)
                for record in records
            ),
            sum(in_journal.values()),
            len([key for key in accepted if key not in in_journal]),
            sum(count > 1 for count in in_journal.values()),
        ]


SPEC = {
    "scheme": "frt",
    "model": "bench",
    "parameters": {"nullify": False, "min_rows": 1, "max_depth": 6},
    "policy": {"gather_agents": VEHICLES, "min_agents": VEHICLES, "deadline": 120.0},
}


class _Watch:
    """Reads who leads, and what is accepted."""

    def __init__(self, url: str) -> None:
        self.leader = ""
        self.up_at = self.accepted_at = 0.0
        self.accepted: set[tuple[str, str, str]] = set()
        self.transport = PahoTransport(Link(url, "watch", session_expiry=0))
        self.transport.subscribe(TOPICS.coordinator_state())
        self.transport.subscribe(TOPICS.receipt("+"))
        connected = threading.Event()
        self.transport.start(Handlers(self._take, connected.set, lambda _why: None))
        connected.wait(PATIENCE)

    def _take(self, message: Message) -> None:
        if not message.payload:
            return
        now, envelope = time.monotonic(), Envelope.from_bytes(message.payload, fleet="fleet")
        match envelope.body:
            case CoordinatorState(status="up", incarnation=incarnation) if incarnation != self.leader:
                self.leader, self.up_at = incarnation, now
            case Receipt(outcome="accepted", task_digest=digest):
                # What is accepted after another one is up, it has accepted: the former one is dead.
                self.accepted.add((envelope.agent or "", envelope.run or "", digest))
                self.accepted_at = now


def _key(entry: Entry) -> tuple[str, str, str] | None:
    if entry.kind != Answer.kind:
        return None
    event = from_value(codec.decode(entry.body))
    assert isinstance(event, Answer)
    return (event.agent, entry.run, event.task_digest)


def _source(number: int) -> Source:
    rng = np.random.default_rng(number)
    X = rng.random((ROWS, 4))
    y = np.where(X[:, 0] > 0.5, X[:, 1], X[:, 2] ** 2) + rng.normal(0.0, 0.01, ROWS)
    data = Dataset(tuple(f"x{index}" for index in range(4)), "y", X, y)
    return Source(data, Dataset(data.features, data.target, data.X[:0], data.y[:0]))
