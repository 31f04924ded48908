"""Whole runs of large fleets over a real broker, and what each answer costs its processes.

A coordinator process with its SQLite journal, Mosquitto, and all vehicles in one process (`raw_vehicles`). In runs with
a cohort a third of the vehicles vanishes in the middle, misses the deadline, and is out. Beside it the floor: the time
that this broker and these vehicles need for a question and an answer of these sizes from each, with nobody to think.
"""

from __future__ import annotations

import select
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import Any, NamedTuple, cast

import numpy as np

from broker.servers.launch import launch
from broker.url import safe_address
from console.client import CoordinatorClient
from glassfleet.contract import catalogue
from glassfleet.contract.messages import Contribution, Task
from glassfleet.contract.scheme import Scheme
from glassfleet.data.dataset import Dataset
from lab.benchmarks.measure import ms, print_table, wait
from lab.benchmarks.raw_mqtt import Peer, publish
from lab.benchmarks.raw_vehicles import GROUPS, RESEND, name_of, rows_of
from lab.benchmarks.vehicle import cpu_seconds, memory
from lab.benchmarks.wire import answers, coordinator_process, ended, is_equal
from lab.demo.secure import secure_broker
from lab.experiments.workers import Worker
from lab.processes import Process

FLEETS = (15, 100, 1_000)
REQUEST_BYTES = 4_000
FLOORS = 5

SETTINGS = {"GLASSFLEET_MAX_MESSAGE_BYTES": "1000000", "GLASSFLEET_FLEET": "bench"}

ELASTIC: dict[str, Any] = {
    "scheme": "fedavg_mlp",
    "participation": "elastic",
    "parameters": {"rounds": 20, "hidden": [8], "epochs": 1},
}

LONG, KILL_AT = 100, 90
"""Rounds of a long run, and after how many its coordinator is killed."""

RUNS: tuple[tuple[dict[str, Any], int], ...] = (
    ({"scheme": "frt"}, 4),
    (ELASTIC, 0),
)
"""What is run, and at which question a third of the fleet vanishes; 0: never."""


ROUNDS = ("rounds", "round p50", "round p99")
COSTS = ("coordinator, ms an answer", "broker, ms an answer", "kB an answer", "kB to a vehicle")
OUTCOME = ("answers", "lost", "doubled", "equal")
"""Heads of the columns that all runs have, see `_figures`."""


def scale(fleets: Sequence[int] = FLEETS, *, signed: bool = False) -> None:
    """Play each of `RUNS` with fleets of so many vehicles, which sign what they say or do not."""
    rows = [_measure(vehicles, *run, signed=signed) for vehicles in fleets for run in RUNS]
    print_table(
        "Whole runs of large fleets (rounds and floor in wall-clock ms, the others in processor time)",
        ["vehicles", "scheme", *ROUNDS, "floor", *COSTS, "coordinator, MB", "journal, MB", *OUTCOME],
        rows,
    )


def _measure(vehicles: int, run: dict[str, Any], drop_at: int, *, signed: bool) -> list[Any]:
    # What nobody misses may be long: the processes share the machine with others.
    deadline = max(10.0, vehicles / 50) if drop_at else 600.0
    stage = staged(vehicles, signed=signed, drop_at=drop_at, back_after=deadline + 5)
    with stage as (api, process, broker, tell, state):
        pid = process.pid
        tell("connect")
        wait(lambda: up(api) == vehicles)
        before = [cpu_seconds(pid), cpu_seconds(broker.pid)]
        size = journal_bytes(state)
        policy = {"gather_agents": vehicles, "min_agents": 0.5, "deadline": deadline, "gather_timeout": 600.0}
        name = api.post("/api/runs", {**run, "model": "bench", "rounds": policy})["run"]
        record = ended(api, name)
        processor = [cpu_seconds(pid) - before[0], cpu_seconds(broker.pid) - before[1]]
        result = settled(tell)
        floor = (
            None if signed else median(_floors(broker.url, vehicles, result["answer.bytes"], tell))
        )  # no vehicle's topic
        journal = (journal_bytes(state) - size) / 1e6
        resident = memory(pid)[1]
    rounds, costs, outcome = _figures(vehicles, record, processor, result)
    beside = "-" if floor is None else ms(floor)
    return [f"{vehicles:,}", run["scheme"], *rounds, beside, *costs, f"{resident:.0f}", f"{journal:.1f}", *outcome]


def _figures(
    vehicles: int, record: dict[str, Any], processor: Sequence[float], result: dict[str, Any]
) -> tuple[list[Any], list[str], list[Any]]:
    """Return what stands below `ROUNDS`, `COSTS` and `OUTCOME`.

    Parameters
    ----------
    processor : sequence of float
        Seconds of coordinator and broker.
    result : dict
        What the vehicles counted.
    """
    times = [each["seconds"] for each in record["rounds"]]
    accepted = sum(each["accepted"] for each in record["rounds"])
    rounds = [len(times), ms(median(times)), ms(quantiles(times, n=100, method="inclusive")[98])]
    costs = [f"{1000 * each / accepted:.2f}" for each in processor]
    costs += [f"{result['bytes.up'] / 1000 / result['answers']:.1f}", f"{result['bytes.down'] / 1000 / vehicles:.0f}"]
    return rounds, costs, [f"{accepted:,}", result["waiting"], result.get("doubled", 0), equality(record)]


def _broker(folder: Path, vehicles: int, *, signed: bool, workers: int) -> tuple[Any, dict[str, str], str | Path]:
    """Start Mosquitto; return it, the coordinator's settings, and the folder of the vehicles' identities."""
    settings = {**SETTINGS, "GLASSFLEET_INTAKE_WORKERS": str(workers)}
    if not signed:
        return launch("mosquitto", state_dir=folder / "broker"), settings, ""
    names = [name_of(number) for number in range(vehicles)]
    broker, identities = secure_broker(folder, "bench", "cloud", names, workers=workers)
    return broker, {**settings, "GLASSFLEET_IDENTITY": str(identities / "cloud")}, identities


class Stage(NamedTuple):
    """What a benchmark of a large fleet works with; `tell` gives the vehicles a command and returns their answer."""

    api: CoordinatorClient
    coordinator: Process
    broker: Any
    tell: Any
    state: Path


@contextmanager
def staged(
    vehicles: int, *, signed: bool = False, drop_at: int = 0, back_after: float = 5.0, workers: int = 1
) -> Iterator[Stage]:
    """Start Mosquitto, a coordinator, and a process of vehicles; the arguments are as `raw_vehicles.Vehicles` says."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="glassfleet-bench-")))
        broker, settings, identities = _broker(folder, vehicles, signed=signed, workers=workers)
        stack.callback(broker.stop)
        api, process = stack.enter_context(coordinator_process(broker.url, folder / "coordinator", **settings))
        fleet = {"url": broker.url, "fleet": "bench", "count": vehicles, "identities": str(identities)}
        fleet |= {"drop_at": drop_at, "back_after": back_after}
        worker = stack.enter_context(Worker("lab.benchmarks.raw_vehicles", [], fleet))

        def tell(what: str, **arguments: int) -> Any:
            return worker.ask({"do": what, **arguments}, "the vehicles")

        yield Stage(api, process, broker, tell, folder / "coordinator")


def settled(tell: Any) -> dict[str, Any]:
    """Return what the vehicles counted, once all have their receipts: some come back as the run ends."""
    deadline = time.monotonic() + 2 * RESEND
    while (result := tell("counted"))["waiting"] and time.monotonic() < deadline:
        time.sleep(0.5)
    return dict(result)


def floors(vehicles: int, size: int) -> list[float]:
    """Return the floor of a fleet whose answers have so many bytes, several times, in seconds."""
    with staged(vehicles) as (api, _, broker, tell, _):
        tell("connect")
        wait(lambda: up(api) == vehicles)
        return _floors(broker.url, vehicles, size, tell)


def _floors(url: str, vehicles: int, size: int, tell: Any) -> list[float]:
    """Return the seconds that a question to all takes until all have answered, with nobody to think."""
    asker = Peer(safe_address(url), "floor")
    asker.subscribe("gf/1/floor/agent/+/answer")
    tell("floor", size=size)
    seconds = []
    for number in range(FLOORS):
        begun, answers = time.perf_counter(), 0
        asker.send(publish("gf/1/floor/request", bytes(REQUEST_BYTES), number + 1))
        while answers < vehicles:
            select.select([asker.socket], [asker.socket] if asker.unsent else [], [])
            asker.flush()
            answers += sum(1 for _ in asker.messages())
        seconds.append(time.perf_counter() - begun)
    asker.close()
    return seconds


def long(fleets: Sequence[int] = FLEETS) -> None:
    """Let fleets learn for a hundred elastic rounds; near the end the coordinator is killed and started again."""
    rows = [_long(vehicles) for vehicles in fleets]
    header = ["vehicles", *ROUNDS, "run, s", *COSTS, "journal, most MB", "at the kill, MB"]
    header += ["started again: until it answers, s", "processor for that, s", "coordinator before, MB", "after, MB"]
    print_table("Long elastic runs (rounds in wall-clock ms)", [*header, *OUTCOME], rows)


def _long(vehicles: int) -> list[Any]:
    with staged(vehicles) as (api, process, broker, tell, state):
        tell("connect")
        wait(lambda: up(api) == vehicles)
        policy = {"gather_agents": vehicles, "min_agents": 1.0, "deadline": 600.0}
        parameters = {**ELASTIC["parameters"], "rounds": LONG}
        begun, idle = time.perf_counter(), [cpu_seconds(process.pid), cpu_seconds(broker.pid)]
        spec = {**ELASTIC, "parameters": parameters, "model": "bench", "rounds": policy}
        name = api.post("/api/runs", spec)["run"]
        sizes: list[int] = []

        def is_late() -> bool:
            sizes.append(journal_bytes(state))
            # Seldom, and not all of the run: it is long, and each look costs the coordinator time.
            return any(each["run"] == name and each["rounds_closed"] >= KILL_AT for each in api.get("/api/runs"))

        wait(is_late, 1.0)
        before, processor = memory(process.pid)[1], cpu_seconds(process.pid) - idle[0]
        process.kill()
        killed = time.perf_counter()
        process.start()
        wait(lambda: answers(api), 0.05)
        restart = [time.perf_counter() - killed, cpu_seconds(process.pid)]
        record = ended(api, name)
        seconds = time.perf_counter() - begun
        processor += cpu_seconds(process.pid) - restart[1]
        processors = [processor, cpu_seconds(broker.pid) - idle[1]]
        after, result = memory(process.pid)[1], settled(tell)
    rounds, costs, outcome = _figures(vehicles, record, processors, result)
    return [
        f"{vehicles:,}",
        *rounds,
        f"{seconds:.0f}",
        *costs,
        *(f"{size / 1e6:.0f}" for size in (max(sizes), sizes[-1])),
        *(f"{each:.1f}" for each in restart),
        *(f"{each:.0f}" for each in (before, after)),
        *outcome,
    ]


@dataclass
class _Once:
    """A scheme whose client computes what it is asked once for all that have the same rows."""

    scheme: Scheme
    _known: dict[tuple[str, bytes], Contribution] = field(default_factory=dict)

    @property
    def client(self) -> _Once:
        return self

    def __getattr__(self, name: str) -> Any:
        return getattr(self.scheme, name)

    def contribute(self, task: Task, data: Dataset, rng: np.random.Generator) -> Contribution:
        key = (task.digest, data.X.tobytes())
        if key not in self._known:
            self._known[key] = self.scheme.client.contribute(task, data, rng)
        return self._known[key]


def equality(record: dict[str, Any]) -> str:
    """Say whether the run's model is the one of its cohort's rows."""
    rows = [rows_of(number) for number in range(GROUPS)]
    once = cast("Scheme", _Once(catalogue.load(record["scheme"])))
    return "yes" if is_equal(record, lambda agent: rows[int(agent[1:]) % GROUPS], once) else "NO"


def journal_bytes(folder: Path) -> int:
    """Return the bytes of a coordinator's journal."""
    return sum(each.stat().st_size for each in folder.glob("journal.sqlite*"))


def up(api: CoordinatorClient) -> int:
    """Return how many vehicles the coordinator takes for up."""
    return sum(each["status"] == "up" for each in api.get("/api/agents"))
