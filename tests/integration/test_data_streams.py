"""Rows on their way to a fleet: files and databases that grow, collectors that are killed, and columns of text."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import structlog

from broker.paho_transport import PahoTransport
from broker.port import Handlers, Link
from broker.servers.mosquitto import MosquittoProcess
from broker.tls import tls_of
from coordinator.specification.run import RoundPolicy, RunSpec
from edge_agent.sources import Source, read_source
from edge_agent.sources.window import WindowStore
from glassfleet.contract import catalogue
from glassfleet.data.dataset import Dataset
from lab.processes import Process
from schemas.errors import DataError
from tests.support.authorities import FleetCa
from tests.support.postgres import PASSWORD, USER, PostgresServer
from tests.support.processes import Call, Processes, eventually
from tests.support.schedules import central_digest
from tests.support.simulation import Simulation

TOPIC = "vehicle/samples"
ACL = f"user v1-samples\ntopic read {TOPIC}\n\nuser car\ntopic write {TOPIC}\n"
"""The vehicle's own broker: one reads, one writes, v1 has a certificate but no rights."""


def wait_for(rows: int, path: Path) -> None:
    eventually(lambda: path.is_file() and WindowStore.open(path).span()[0] >= rows, "the collector keeps the rows")


def line(number: int) -> bytes:
    return json.dumps({"n": number, "speed": number * 0.5, "quality": number / 100}).encode() + b"\n"


def collect(processes: Processes, store: Path, *options: str) -> Process:
    """Start a collector that fills a window."""
    return processes.start("data", "collect", "--store", str(store), *options)


def ended(process: Process) -> str:
    """Tell a collector to end; its log."""
    assert process.end(60) == 0, process.logged()
    return process.logged()


def numbers(store: Path) -> list[int]:
    return [row[0] for row in WindowStore.open(store).read()[1]]


@dataclass
class Vehicle:
    """A broker with mutual TLS in the vehicle."""

    broker: MosquittoProcess
    ca: FleetCa
    folders: dict[str, Path]

    def source(self, who: str) -> tuple[str, ...]:
        """Options with which an identity reads the samples."""
        return "--source", f"{self.broker.url}/{TOPIC}", "--identity", str(self.folders[who])

    @contextmanager
    def publishing(self) -> Iterator[None]:
        """Let the car publish a sample every few milliseconds."""
        car = PahoTransport(Link(self.broker.url, "car", tls=tls_of(self.folders["car"])))
        car.start(Handlers(lambda _: None, lambda: None, lambda _: None))
        is_over = threading.Event()

        def publish() -> None:
            number = 0
            while not is_over.wait(0.02):
                car.publish(TOPIC, line(number))
                number += 1

        thread = threading.Thread(target=publish)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()
            car.stop()


@pytest.fixture(scope="module")
def vehicle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vehicle]:
    folder = tmp_path_factory.mktemp("vehicle")
    ca = FleetCa(folder)
    folders = {name: ca.identity("agent", name) for name in ("v1", "v1-samples", "car")}
    broker = MosquittoProcess(folder / "state", identity=ca.identity("broker", "broker"), acl=ACL)
    broker.start()
    yield Vehicle(broker, ca, folders)
    broker.stop()


@pytest.mark.needs("mosquitto")
@pytest.mark.parametrize(
    ("options", "text"),
    [
        ([], "certificate"),
        (["--ca-file", "{ca}"], "certificate"),
        (["--identity", "{stranger}"], "certificate"),
        (["--identity", "{nowhere}"], "is no identity folder: key.pem is missing"),
    ],
    ids=["nothing", "only-the-ca", "another-fleets", "no-folder"],
)
def test_collector_says_why_at_once_when_the_broker_does_not_let_it_in(
    vehicle: Vehicle, tmp_path: Path, call: Call, options: list[str], text: str
) -> None:
    places = {
        "ca": vehicle.folders["v1"] / "ca.pem",
        "stranger": FleetCa(tmp_path / "other").identity("agent", "v1-samples"),
        "nowhere": tmp_path / "nowhere",
    }
    given = [option.format(**places) for option in options]
    store = tmp_path / "drive.window"
    done = call("data", "collect", "--store", str(store), "--source", f"{vehicle.broker.url}/{TOPIC}", *given)
    assert done.returncode in {2, 4}
    assert text in done.stderr
    assert "Traceback" not in done.stderr
    assert not store.exists(), "no empty window stays behind"


@pytest.mark.needs("mosquitto")
def test_collector_says_so_and_goes_on_when_the_broker_dies_and_comes_back(
    vehicle: Vehicle, tmp_path: Path, processes: Processes
) -> None:
    store = tmp_path / "drive.window"
    process = collect(processes, store, *vehicle.source("v1-samples"))
    with vehicle.publishing():
        wait_for(5, store)
        vehicle.broker.kill()
        vehicle.broker.start()
        before = WindowStore.open(store).span()[0]
        wait_for(before + 5, store)
    assert "source-lost" in ended(process)


def test_collector_keeps_each_row_of_a_growing_file_once_when_it_is_killed_again_and_again(
    tmp_path: Path, processes: Processes
) -> None:
    file, store = tmp_path / "samples.jsonl", tmp_path / "drive.window"
    file.touch()
    total = 1500
    is_over = threading.Event()

    def write() -> None:
        with file.open("ab", buffering=0) as out:
            for number in range(total):
                whole = line(number)
                out.write(whole[:9])  # a half line must wait for its other half
                out.write(whole[9:])
                if number % 10 == 0:
                    time.sleep(0.01)
        is_over.set()

    thread = threading.Thread(target=write)
    thread.start()
    kept = 0
    while not is_over.is_set():
        process = collect(processes, store, "--source", str(file), "--follow")
        wait_for(min(total, kept + 300), store)
        process.kill()
        kept = WindowStore.open(store).span()[0]
    thread.join()
    with file.open("ab") as out:
        out.write(line(total))
    process = collect(processes, store, "--source", str(file), "--follow")
    wait_for(total + 1, store)
    ended(process)
    assert numbers(store) == list(range(total + 1))


def test_query_reads_postgresql_with_the_password_from_the_environment_and_cannot_write(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = postgres.database()
    with postgres.connect(database) as connection:
        connection.execute("CREATE TABLE drive (speed real, load integer, price numeric, quality double precision)")
        connection.execute(
            "INSERT INTO drive SELECT n * 0.5, n % 4, n / 7.0, n / 100.0 FROM generate_series(1, 5000) AS n"
        )
        connection.execute("CREATE SEQUENCE trips")
        connection.execute("CREATE TABLE gaps AS SELECT 1 AS a, NULL::real AS y UNION ALL SELECT 2, 3")
    place = f"postgresql://{USER}@127.0.0.1:{postgres.port}/{database}"
    monkeypatch.setenv("PGPASSWORD", "wrong")
    with pytest.raises(DataError, match=r"Put the password into ~/.pgpass or PGPASSWORD"):
        read_source(f"{place}?table=drive")
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    source = read_source(f"{place}?query=SELECT *, speed::int %25 2 AS even, quality AS y FROM drive WHERE load < 2")
    assert source.train.features == ("speed", "load", "price", "quality", "even")
    assert source.train.rows == 2500
    assert read_source(f"{place}?table=public.drive").train.rows == 5000
    with pytest.raises(DataError, match="Only reading is allowed here"):
        read_source(f"{place}?query=DELETE FROM drive RETURNING speed, quality")
    with pytest.raises(DataError, match=r"cannot execute nextval\(\) in a read-only transaction.*write a SELECT"):
        read_source(f"{place}?query=SELECT nextval('trips') AS a, quality FROM drive")
    with pytest.raises(DataError, match=r"row 1 .* column 'y': the cell is empty"):
        read_source(f"{place}?query=SELECT a, y FROM gaps ORDER BY a")
    with pytest.raises(DataError, match='relation "nosuch" does not exist'):
        read_source(f"{place}?table=nosuch")
    assert read_source(f"{place}?table=drive").train.rows == 5000


FUELS = {"v1": ("petrol", "diesel"), "v2": ("petrol", "gas"), "v3": ("diesel", "gas")}
"""No vehicle has seen all of them."""


def sources(folder: Path) -> dict[str, Source]:
    result = {}
    for seed, (name, fuels) in enumerate(FUELS.items()):
        rng = np.random.default_rng(seed)
        lines = ["speed,fuel,use"]
        for _ in range(120):
            speed, fuel = rng.uniform(0, 100), fuels[int(rng.integers(0, 2))]
            lines.append(f"{speed:.2f},{fuel},{'van' if fuel == 'diesel' and speed < 60 else 'car'}")
        path = folder / f"{name}.csv"
        path.write_text("\n".join(lines) + "\n")
        result[name] = read_source(path, labels=True, categories=True)
    return result


def with_categories(source: Source, categories: dict[str, tuple[str, ...]]) -> Source:
    """Return the rows as positions among the fleet's categories, as one machine with all files would have them."""
    data = source.train
    X = data.X.copy()
    for name, own in data.categories.items():
        at = data.features.index(name)
        X[:, at] = [categories[name].index(own[int(place)]) for place in data.X[:, at]]
    return Source(Dataset(data.features, data.target, X, data.y, categories=dict(categories)), source.test)


def run_spec(scheme: str, **parameters: object) -> RunSpec:
    policy = RoundPolicy(deadline=20.0, gather_agents=3, gather_timeout=30, min_agents=3, on_missed_quorum="fail")
    return RunSpec(
        run="r1",
        scheme=scheme,
        model="m",
        parameters=parameters,
        rounds=policy,
        participation="elastic" if scheme in {"dp_tree", "fedga"} else "cohort",
    )


def learned(folder: Path, there: dict[str, Source], spec: RunSpec) -> tuple[Simulation, dict[str, object]]:
    fleet = Simulation(there, folder)
    fleet.begin(2.0)
    fleet.start_run(spec)
    return fleet, fleet.run_until_ended("r1", within=600.0)


@pytest.mark.usefixtures("structlog_defaults")
@pytest.mark.parametrize("scheme", ["frbc", "frt"])
def test_vehicle_refuses_by_name_when_the_scheme_takes_no_text(tmp_path: Path, scheme: str) -> None:
    with structlog.testing.capture_logs() as lines:
        _, ended = learned(tmp_path, sources(tmp_path), run_spec(scheme))
    assert ended["outcome"] == "failed"
    (closed,) = [each for each in lines if each["event"] == "round-closed"]
    assert set(closed["dropped"]) == set(FUELS)
    assert all("column 'fuel' holds text" in why for why in closed["dropped"].values())


def gappy(folder: Path) -> dict[str, Source]:
    """Return rows of houses; in one file no size is known, in another all are; some have no city."""
    result = {}
    for seed, name in enumerate(FUELS):
        rng = np.random.default_rng(seed)
        lines = ["size,city,garden,split,price"]
        for row in range(200):
            size, city, garden = rng.uniform(30, 200), rng.choice(["Lima", "Rio", ""]), rng.choice(["yes", "no"])
            answer = f"{size:.1f}" if rng.random() < 0.5 * seed else rng.choice(["", "NA", "?"])
            price = (size if answer[:1].isdigit() else 150.0) + 40.0 * (city == "") + 20.0 * (garden == "yes")
            lines.append(f"{answer},{city},{garden},{'test' if row % 5 == 0 else 'train'},{price:.1f}")
        path = folder / f"{name}.csv"
        path.write_text("\n".join(lines) + "\n")
        result[name] = read_source(path, categories=True, missing=True)
    return result


def test_fleet_learns_from_rows_with_empty_cells_what_one_machine_learns(tmp_path: Path) -> None:
    there = gappy(tmp_path)
    fleet, ended = learned(tmp_path, there, run_spec("tree", min_rows=1))
    assert ended["outcome"] == "finished", ended
    record = fleet.record("m")
    assert record is not None
    size, city, garden = record.document["domain"]["features"]
    assert size["low"] < size["missing"] < size["high"]
    assert city["categories"] == ["Lima", "Rio", "missing"]
    assert garden["categories"] == ["no", "yes"]
    pooled = {
        name: with_categories(each, {"city": tuple(city["categories"]), "garden": tuple(garden["categories"])})
        for name, each in there.items()
    }
    assert record.digest == central_digest(record, pooled)
    model = catalogue.model_of(record)
    rows = np.array([[np.nan, 0.0, 0.0], [60.0, 1.0, 1.0], [np.nan, 2.0, 1.0]])
    assert model.predict(rows) == pytest.approx([150.0, 80.0, 210.0], abs=20.0)
    assert any("size is missing" in str(rule) for rule in model.rules())


@pytest.mark.parametrize("scheme", ["frt", "tsk"])
def test_vehicle_refuses_by_name_when_the_scheme_takes_no_empty_cells(tmp_path: Path, scheme: str) -> None:
    numbers = {}
    for name, each in gappy(tmp_path).items():
        numbers[name] = Source(each.train.select(("size",)), each.test.select(("size",)))
    with structlog.testing.capture_logs() as lines:
        _, ended = learned(tmp_path, numbers, run_spec(scheme))
    assert ended["outcome"] == "failed"
    (closed,) = [each for each in lines if each["event"] == "round-closed"]
    assert all("column 'size' has empty cells here" in why for why in closed["dropped"].values())
