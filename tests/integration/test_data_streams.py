"""Live rows as a vehicle has them: a broker that asks for certificates, a file that grows, a pipe; all real."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from broker.paho_transport import PahoTransport
from broker.port import Handlers, Link
from broker.servers.mosquitto import MosquittoProcess
from broker.tls import tls_of
from edge_agent.forecast.source import Access, Samples
from edge_agent.sources.window import WindowStore
from tests.support.fleet import FleetCa

COLLECT = [sys.executable, "-m", "console.main", "data", "collect"]
TOPIC = "vehicle/samples"
ACL = f"user v1-samples\ntopic read {TOPIC}\n\nuser car\ntopic write {TOPIC}\n"
"""The vehicle's own broker: one reads, one writes, v1 has a certificate but no rights."""


def wait_for(rows: int, path: Path, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not path.is_file() or WindowStore.open(path).span()[0] < rows:
        assert time.monotonic() < end, "the collector did not keep the rows"
        time.sleep(0.05)


def line(number: int) -> bytes:
    return json.dumps({"n": number, "speed": number * 0.5, "quality": number / 100}).encode() + b"\n"


@dataclass
class Vehicle:
    """A broker with mutual TLS in the vehicle."""

    broker: MosquittoProcess
    ca: FleetCa
    folders: dict[str, Path]

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


@pytest.mark.mosquitto
def test_collector_fills_the_window_over_mutual_tls_when_it_shows_its_certificate(
    vehicle: Vehicle, tmp_path: Path
) -> None:
    store = tmp_path / "drive.window"
    command = [*COLLECT, "--source", f"{vehicle.broker.url}/{TOPIC}", "--store", str(store), "--count", "20", "--json"]
    with vehicle.publishing():
        done = subprocess.run(
            [*command, "--identity", str(vehicle.folders["v1-samples"])],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout)
    assert (counts["taken"], counts["refused"], counts["rows"]) == (20, 0, 20)
    numbers = [row[0] for row in WindowStore.open(store).read()[1]]
    assert numbers == list(range(numbers[0], numbers[0] + 20))


@pytest.mark.mosquitto
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "certificate"),
        (["--ca-file", "{ca}"], "certificate"),
        (["--identity", "{stranger}"], "certificate"),
        (["--identity", "{nowhere}"], "is no identity folder: key.pem is missing"),
    ],
    ids=["nothing", "only-the-ca", "another-fleets", "no-folder"],
)
def test_collector_says_why_at_once_when_the_broker_does_not_let_it_in(
    vehicle: Vehicle, tmp_path: Path, options: list[str], said: str
) -> None:
    places = {
        "ca": vehicle.folders["v1"] / "ca.pem",
        "stranger": FleetCa(tmp_path / "other").identity("agent", "v1-samples"),
        "nowhere": tmp_path / "nowhere",
    }
    given = [option.format(**places) for option in options]
    store = tmp_path / "drive.window"
    done = subprocess.run(
        [*COLLECT, "--source", f"{vehicle.broker.url}/{TOPIC}", "--store", str(store), *given],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode in {2, 4}
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not store.exists(), "no empty window stays behind"


@pytest.mark.mosquitto
def test_collector_hears_nothing_and_is_told_so_when_the_access_rules_give_its_certificate_no_topic(
    vehicle: Vehicle, tmp_path: Path
) -> None:
    store = tmp_path / "drive.window"
    command = [*COLLECT, "--source", f"{vehicle.broker.url}/{TOPIC}", "--store", str(store), "--silence", "1"]
    process = subprocess.Popen(
        [*command, "--identity", str(vehicle.folders["v1"])], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    with vehicle.publishing():
        first = process.stderr.readline()
    process.terminate()
    out, err = process.communicate(timeout=60)
    # Mosquitto grants the subscription, and then passes nothing on.
    assert "no sample for 1 s" in first
    assert "may we read it" in first
    assert out == "", "what is said on the way is no result"
    assert "0 samples taken" in err


@pytest.mark.mosquitto
def test_collector_says_so_and_goes_on_when_the_broker_dies_and_comes_back(vehicle: Vehicle, tmp_path: Path) -> None:
    store = tmp_path / "drive.window"
    process = subprocess.Popen(
        [
            *COLLECT, "--source", f"{vehicle.broker.url}/{TOPIC}", "--store", str(store),
            "--identity", str(vehicle.folders["v1-samples"]),
        ],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    with vehicle.publishing():
        wait_for(5, store)
        vehicle.broker.kill()
        vehicle.broker.start()
        before = WindowStore.open(store).span()[0]
        wait_for(before + 5, store)
    process.terminate()
    assert "source-lost" in process.communicate(timeout=60)[1]
    assert process.returncode == 0


@pytest.mark.mosquitto
def test_forecasters_source_hears_samples_over_mutual_tls(vehicle: Vehicle) -> None:
    samples = Samples(f"{vehicle.broker.url}/{TOPIC}", access=Access(vehicle.folders["v1-samples"]))
    with vehicle.publishing():
        first = next(iter(samples))
    samples.close()
    assert isinstance(first, dict)
    assert set(first) == {"n", "speed", "quality"}


def test_collector_keeps_each_row_of_a_growing_file_once_when_it_is_killed_again_and_again(tmp_path: Path) -> None:
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
    command = [*COLLECT, "--source", str(file), "--follow", "--store", str(store)]
    kept = 0
    while not is_over.is_set():
        process = subprocess.Popen(command)
        wait_for(min(total, kept + 300), store)
        process.send_signal(signal.SIGKILL)
        process.wait()
        kept = WindowStore.open(store).span()[0]
    thread.join()
    with file.open("ab") as out:
        out.write(line(total))
    process = subprocess.Popen(command)
    wait_for(total + 1, store)
    process.terminate()
    assert process.wait(60) == 0
    assert [row[0] for row in WindowStore.open(store).read()[1]] == list(range(total + 1))


def test_collector_goes_on_with_the_new_file_when_the_log_is_rotated(tmp_path: Path) -> None:
    file, store = tmp_path / "samples.jsonl", tmp_path / "drive.window"
    file.write_bytes(line(0) + line(1))
    process = subprocess.Popen([*COLLECT, "--source", str(file), "--follow", "--store", str(store)])
    wait_for(2, store)
    file.rename(tmp_path / "samples.jsonl.1")
    file.write_bytes(line(2))
    wait_for(3, store)
    file.write_bytes(b"")  # cut in place
    wait_for(3, store)
    time.sleep(0.5)  # until the cut was seen; a longer file at once could not be told from one that grew
    file.write_bytes(line(3))
    wait_for(4, store)
    process.terminate()
    assert process.wait(60) == 0
    assert [row[0] for row in WindowStore.open(store).read()[1]] == [0, 1, 2, 3]


def test_collector_outlives_the_writers_of_a_pipe_when_it_follows(tmp_path: Path) -> None:
    pipe, store = tmp_path / "pipe", tmp_path / "drive.window"
    os.mkfifo(pipe)
    process = subprocess.Popen([*COLLECT, "--source", str(pipe), "--follow", "--store", str(store)])
    for number in range(3):
        with pipe.open("wb") as writer:
            writer.write(line(number))
        wait_for(number + 1, store)
    process.terminate()
    assert process.wait(60) == 0


def test_collector_leaves_a_whole_window_when_the_disk_is_full(tmp_path: Path) -> None:
    store = tmp_path / "drive.window"
    # The limit of a file's size stands for the disk's end: the write fails in the same place.
    limited = [
        sys.executable,
        "-c",
        (
            "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
            "resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000)); "
            "from console.main import main; sys.argv = ['glassfleet', *sys.argv[1:]]; main()"
        ),
        *COLLECT[3:],
    ]
    rows = b"".join(line(number) for number in range(20_000))
    command = ["--source", "-", "--store", str(store), "--max-rows", "100000"]
    done = subprocess.run([*limited, *command], input=rows, capture_output=True, check=False)
    assert done.returncode == 5, done.stderr
    assert b"Check the folder, its rights and the free space" in done.stderr
    kept = [row[0] for row in WindowStore.open(store).read()[1]]
    assert 0 < len(kept) < 20_000
    assert kept == list(range(len(kept)))
    again = subprocess.run([*COLLECT, *command], input=line(7), capture_output=True, check=False)
    assert again.returncode == 0, again.stderr
    assert WindowStore.open(store).span()[0] == len(kept) + 1
