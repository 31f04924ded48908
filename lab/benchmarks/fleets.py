"""Whole runs of large fleets over a real broker, and what each answer costs its processes.

A coordinator process with its SQLite journal, Mosquitto, and all vehicles in one process, no more than sockets
(`raw_vehicles`). In runs with a cohort a third of these vanishes in the middle, misses the deadline, and is out. Beside
them the floor: the time that this broker and these vehicles need for a question and an answer of these sizes from each,
with nobody to think.
"""

from __future__ import annotations

import asyncio
import copy
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import numpy as np

from broker.servers.launch import launch
from broker.url import safe_address
from console.client import CoordinatorClient, CoordinatorError
from glassfleet.contract import catalogue
from glassfleet.contract.messages import Contribution, Task
from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain
from glassfleet.simulation import federated
from lab.benchmarks.measure import coordinator_process, cpu_seconds, ended, ms, print_table, resident, wait
from lab.benchmarks.raw_mqtt import connect, publish
from lab.benchmarks.raw_vehicles import GROUPS, RESEND, name_of, rows_of
from lab.demo.secure import secure_broker
from lab.experiments.workers import Worker
from lab.processes import Process
from schemas.codec import document_digest

FLEETS = (15, 100, 1_000)
REQUEST_BYTES = 4_000
FLOORS = 5

SETTINGS = {"GLASSFLEET_MAX_MESSAGE_BYTES": "1000000", "GLASSFLEET_FLEET": "bench"}

FRT: dict[str, Any] = {"scheme": "frt"}


def elastic(rounds: int) -> dict[str, Any]:
    """Return a run of so many rounds that wait for nobody in particular."""
    parameters = {"rounds": rounds, "hidden": [8], "epochs": 1}
    return {"scheme": "fedavg_mlp", "participation": "elastic", "parameters": parameters}


LONG, KILL_AT = 100, 90
"""Rounds of a long run, and after how many its coordinator is killed."""

RUNS = ((FRT, 4), (elastic(20), 0))
"""What is run, and at which question a third of the fleet vanishes; 0: never."""


@dataclass
class Stage:
    """What a benchmark of a large fleet works with.

    Attributes
    ----------
    vehicles : int
    api : CoordinatorClient
    coordinator, broker : Process, ChildBroker
    tell : callable
        Gives the vehicles a command, and returns their answer.
    folder : Path
        The coordinator's state.
    queue : int
        The coordinator's longest queue, as far as `metrics` has seen.
    """

    vehicles: int
    api: CoordinatorClient
    coordinator: Process
    broker: Any
    tell: Callable[..., Any]
    folder: Path
    queue: int = 0

    def up(self) -> bool:
        """Whether the coordinator takes all vehicles for up."""
        return [each["status"] for each in self.api.get("/api/agents")].count("up") == self.vehicles

    def start(self, spec: dict[str, Any], **rounds: float) -> str:
        """Start a run that waits for all vehicles; return its id."""
        policy = {"gather_agents": self.vehicles, "min_agents": 1.0, "deadline": 600.0, "gather_timeout": 600.0}
        return str(self.api.post("/api/runs", {**spec, "model": "bench", "rounds": policy | rounds})["run"])

    def spent(self) -> list[float]:
        """Return the processor seconds of coordinator, broker and intake workers."""
        pid = self.coordinator.pid
        found = (each.read_text() for each in Path(f"/proc/{pid}/task").glob("*/children"))
        workers = [int(child) for children in found for child in children.split()]
        return [cpu_seconds(each) for each in (pid, self.broker.pid, *workers)]

    def journal(self) -> int:
        """Return the bytes of the journal."""
        return sum(each.stat().st_size for each in self.folder.glob("journal.sqlite*"))

    def metrics(self) -> dict[str, Any]:
        """Return the counters of the coordinator's life; nothing while there is none."""
        self.api.look_again()
        try:
            found: dict[str, Any] = self.api.get("/api/metrics")
        except CoordinatorError:
            return {}
        self.queue = max(self.queue, found["queue.messages"])
        return found

    def settled(self) -> dict[str, Any]:
        """Return what the vehicles counted, once all have their receipts: some come back as the run ends."""
        deadline = time.monotonic() + 2 * RESEND
        while (result := self.tell("counted"))["waiting"] and time.monotonic() < deadline:
            time.sleep(0.5)
        return dict(result)

    def figures(self, record: dict[str, Any], spent: Sequence[float]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return columns of a run: its rounds; and what answers cost and came to, of processor seconds `spent`."""
        times, accepted = rounds_of(record)
        result = self.settled()
        rounds = {
            "rounds": len(times),
            "round p50": ms(median(times)),
            "round p99": ms(quantiles(times, n=100, method="inclusive")[98]),
        }
        return rounds, {
            "coordinator, ms an answer": f"{1000 * spent[0] / accepted:.2f}",
            "broker, ms an answer": f"{1000 * spent[1] / accepted:.2f}",
            "kB an answer": f"{result['bytes.up'] / 1000 / result['answers']:.1f}",
            "kB to a vehicle": f"{result['bytes.down'] / 1000 / self.vehicles:.0f}",
            "answers": f"{accepted:,}",
            "lost": result["waiting"],
            "doubled": result.get("doubled", 0),
            "equal": equality(record),
        }


def rounds_of(record: dict[str, Any]) -> tuple[list[float], int]:
    """Return the seconds of each round of a run, and its answers."""
    return [each["seconds"] for each in record["rounds"]], sum(each["accepted"] for each in record["rounds"])


@contextmanager
def staged(
    vehicles: int, *, signed: bool = False, drop_at: int = 0, back_after: float = 5.0, workers: int = 1
) -> Iterator[Stage]:
    """Start Mosquitto, a coordinator, and a process of vehicles; the arguments are as `raw_vehicles.Vehicles` says."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="glassfleet-bench-")))
        settings, identities = {**SETTINGS, "GLASSFLEET_INTAKE_WORKERS": str(workers)}, ""
        if signed:
            names = [name_of(number) for number in range(vehicles)]
            broker: Any
            broker, place = secure_broker(folder, "bench", "cloud", names, workers=workers)
            settings["GLASSFLEET_IDENTITY"], identities = str(place / "cloud"), str(place)
        else:
            broker = launch("mosquitto", state_dir=folder / "broker")
        stack.callback(broker.stop)
        api, process = stack.enter_context(coordinator_process(broker.url, folder / "coordinator", **settings))
        fleet = {"url": broker.url, "fleet": "bench", "count": vehicles, "identities": identities}
        fleet |= {"drop_at": drop_at, "back_after": back_after}
        worker = stack.enter_context(Worker("lab.benchmarks.raw_vehicles", [], fleet))

        def tell(what: str, **arguments: int) -> Any:
            return worker.ask({"do": what, **arguments}, "the vehicles")

        yield Stage(vehicles, api, process, broker, tell, folder / "coordinator")


def equality(record: dict[str, Any]) -> str:
    """Say whether a run's model is what its cohort's rows give in one process, by their digests."""
    # A client that computes what it is asked once for all that have the same rows.
    scheme: Any = copy.copy(catalogue.load(record["scheme"]))
    contribute, known = scheme.contribute, dict[tuple[str, bytes], Contribution]()

    def once(task: Task, data: Dataset, rng: np.random.Generator) -> Contribution:
        key = (task.digest, data.X.tobytes())
        if key not in known:
            known[key] = contribute(task, data, rng)
        return known[key]

    scheme.contribute = once
    rows, spec = [rows_of(number) for number in range(GROUPS)], record["spec"]
    outcome = federated(
        scheme,
        scheme.Parameters.model_validate(spec["parameters"]),
        Domain.from_document(record["domain"]),
        {agent: rows[int(agent[1:]) % GROUPS] for agent in record["cohort"]},
        spec["seed"],
        max_rows_each=record["max_rows_each"] or 0,
    )
    return "yes" if document_digest(outcome.model.to_document()) == record["model"]["digest"] else "NO"


# --- the benchmarks ---------------------------------------------------------------------------------------------------


def scale(fleets: Sequence[int] = FLEETS, *, signed: bool = False) -> None:
    """Play each of `RUNS` with fleets of so many vehicles, which sign what they say or do not."""
    print_table(
        "Whole runs of large fleets (rounds and floor in wall-clock ms, the others in processor time)",
        [_scale(vehicles, *run, signed=signed) for vehicles in fleets for run in RUNS],
    )


def _scale(vehicles: int, run: dict[str, Any], drop_at: int, *, signed: bool) -> dict[str, Any]:
    # What nobody misses may be long: the processes share the machine with others.
    deadline = max(10.0, vehicles / 50) if drop_at else 600.0
    with staged(vehicles, signed=signed, drop_at=drop_at, back_after=deadline + 5) as stage:
        stage.tell("connect")
        wait(stage.up)
        before, size = stage.spent(), stage.journal()
        record = ended(stage.api, stage.start(run, min_agents=0.5, deadline=deadline))
        spent = [after - begun for after, begun in zip(stage.spent(), before, strict=True)]
        rounds, costs = stage.figures(record, spent)
        # Its topic is no vehicle's: those that sign may not write there.
        floor = "-" if signed else ms(median(_floors(stage, stage.tell("counted")["answer.bytes"])))
        sizes = {
            "coordinator, MB": f"{resident(stage.coordinator.pid)[1]:.0f}",
            "journal, MB": f"{(stage.journal() - size) / 1e6:.1f}",
        }
    return {"vehicles": f"{vehicles:,}", "scheme": run["scheme"], **rounds, "floor": floor, **sizes, **costs}


def floors(vehicles: int, size: int) -> list[float]:
    """Return the floor of a fleet whose answers have so many bytes, several times, in seconds."""
    with staged(vehicles) as stage:
        stage.tell("connect")
        wait(stage.up)
        return _floors(stage, size)


def _floors(stage: Stage, size: int) -> list[float]:
    """Return the seconds that a question to all takes until all have answered, with nobody to think."""

    async def asked() -> list[float]:
        answers = asyncio.Queue[str]()
        asker = await connect(safe_address(stage.broker.url), "floor", lambda topic, _: answers.put_nowait(topic))
        await asker.subscribe("gf/1/floor/agent/+/answer")
        seconds = []
        for number in range(FLOORS):
            begun = time.perf_counter()
            asker.send(publish("gf/1/floor/request", bytes(REQUEST_BYTES), number + 1))
            for _ in range(stage.vehicles):
                await answers.get()
            seconds.append(time.perf_counter() - begun)
        asker.close()
        return seconds

    stage.tell("floor", size=size)
    return asyncio.run(asked())


def long(fleets: Sequence[int] = FLEETS) -> None:
    """Let fleets learn for a hundred elastic rounds; near the end the coordinator is killed and started again."""
    print_table("Long elastic runs (rounds in wall-clock ms)", [_long(vehicles) for vehicles in fleets])


def _long(vehicles: int) -> dict[str, Any]:
    with staged(vehicles) as stage:
        api, process = stage.api, stage.coordinator
        stage.tell("connect")
        wait(stage.up)
        begun, (own, of_broker, *_) = time.perf_counter(), stage.spent()
        name = stage.start(elastic(LONG))
        sizes: list[int] = []

        def is_late() -> bool:
            sizes.append(stage.journal())
            # Seldom, and not all of the run: it is long, and each look costs the coordinator time.
            return any(each["run"] == name and each["rounds_closed"] >= KILL_AT for each in api.get("/api/runs"))

        wait(is_late, 1.0)
        before, processor = resident(process.pid)[1], cpu_seconds(process.pid) - own
        process.kill()
        killed = time.perf_counter()
        process.start()
        wait(stage.metrics, 0.05)
        until, busy = time.perf_counter() - killed, cpu_seconds(process.pid)
        record = ended(api, name)
        seconds = time.perf_counter() - begun
        spent = [processor + cpu_seconds(process.pid) - busy, cpu_seconds(stage.broker.pid) - of_broker]
        after = resident(process.pid)[1]
        rounds, costs = stage.figures(record, spent)
    return {
        "vehicles": f"{vehicles:,}",
        **rounds,
        "run, s": f"{seconds:.0f}",
        "journal, most MB": f"{max(sizes) / 1e6:.0f}",
        "at the kill, MB": f"{sizes[-1] / 1e6:.0f}",
        "started again: until it answers, s": f"{until:.1f}",
        "processor for that, s": f"{busy:.1f}",
        "coordinator before, MB": f"{before:.0f}",
        "after, MB": f"{after:.0f}",
        **costs,
    }


def storm(fleets: Sequence[int] = FLEETS) -> None:
    """Let fleets come up at once; then start the broker again in the midst of an elastic run; kill the coordinator."""
    print_table(
        "Storms (seconds of wall-clock until all vehicles are known, or the next answer is accepted)",
        [row for vehicles in fleets for row in _storm(vehicles)],
    )


def _storm(vehicles: int) -> list[dict[str, Any]]:
    rows = []
    with staged(vehicles) as stage:
        process = stage.coordinator
        stage.tell("connect", silent=True)

        def seen(what: str, trouble: Callable[[], None], spent: float) -> None:
            """Add a line; `trouble` returns when it is over, `spent` is the processor time that was used before, s."""
            begun, stage.queue = time.perf_counter(), 0
            trouble()
            rows.append(
                {
                    "vehicles": f"{vehicles:,}",
                    "what": what,
                    "s until": f"{time.perf_counter() - begun:.2f}",
                    "processor, s": f"{cpu_seconds(process.pid) - spent:.1f}",
                    "longest queue": f"{stage.queue:,}",
                    "coordinator, MB": f"{resident(process.pid)[1]:.0f}",
                }
            )

        def above(name: str, before: int, pause: float = 0.02) -> None:
            wait(lambda: stage.metrics().get(name, 0) > before, pause)

        def births() -> None:
            stage.tell("announce")
            wait(lambda: stage.metrics() and stage.up(), 0.1)

        def restart() -> None:
            connected = stage.metrics()["connected"]
            stage.broker.restart()
            above("connected", connected)
            above("receipts.accepted", stage.metrics()["receipts.accepted"])

        def kill() -> None:
            process.kill()
            process.start()
            above("receipts.accepted", 0)

        def in_a_round(closed: int) -> None:
            """Wait until so many rounds are closed, and a third of the vehicles is accepted in the next one."""
            above("rounds.closed", closed - 1, 0.05)
            above("receipts.accepted", stage.metrics()["receipts.accepted"] + vehicles // 3, 0.05)

        seen("births", births, cpu_seconds(process.pid))
        name = stage.start(elastic(6))
        in_a_round(4)
        seen("broker again", restart, cpu_seconds(process.pid))
        in_a_round(6)
        seen("coordinator killed", kill, 0.0)
        record = ended(stage.api, name)
        result = stage.settled()
        # Elastic rounds do not wait for who is down: then there is no one cohort whose model it could be.
        few = sum(each["accepted"] < vehicles for each in record["rounds"])
        equal = f"a round was of fewer ({few})" if few else equality(record)
    print(f"{vehicles:,} vehicles: {result['waiting']} lost, {result.get('doubled', 0)} doubled, equal: {equal}")
    return rows


def intake(fleets: Sequence[int] = (500,)) -> None:
    """Let each fleet learn signed with one process, and with two intake workers.

    The processes share the machine with vehicles and broker, so rounds tell little of what a larger one would carry.
    The processor time does: there each process has a core of its own, and the busiest is the bound.
    """
    print_table(
        "Signed answers through one process and through two intake workers (processor time; rounds in wall-clock ms)",
        [_intake(vehicles, workers) for vehicles in fleets for workers in (1, 2)],
    )


def _intake(vehicles: int, workers: int) -> dict[str, Any]:
    with staged(vehicles, signed=True, workers=workers) as stage:
        stage.tell("connect")
        wait(stage.up)
        before = stage.spent()
        record = ended(stage.api, stage.start(FRT, min_agents=0.5))
        spent = [after - begun for after, begun in zip(stage.spent(), before, strict=True)]
        rounds, costs = stage.figures(record, spent)
    own, _, *others = (each / rounds_of(record)[1] for each in spent)
    return {
        "vehicles": f"{vehicles:,}",
        "workers": len(others) or "none",
        **rounds,
        **costs,
        "busiest worker, ms an answer": f"{1000 * max(others):.2f}" if others else "-",
        "answers a second that the busiest process can take": f"{1 / max(own, *others, 0.0):,.0f}",
    }
