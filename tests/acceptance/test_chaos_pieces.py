"""The pieces of the chaos harness, each alone: the schedule, the road, the transport that misbehaves, the clock."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.memory import MemoryHub
from broker.memory_client import MemoryTransport
from broker.port import Handlers, Link, Message
from lab.chaos.faulty_transport import VARIABLE, FaultyTransport, MischiefFile
from lab.chaos.proxy import Proxy
from lab.chaos.schedule import EVERYONE, KINDS, STATES, make_schedule
from tests.support.processes import eventually, python

VEHICLES = ("v0", "v1", "v2")


# The schedule


def test_schedule_is_a_function_of_the_seed_and_begins_alike_when_more_faults_are_asked_for() -> None:
    assert make_schedule(7, 60, VEHICLES) == make_schedule(7, 200, VEHICLES)[:60]
    assert make_schedule(7, 60, VEHICLES) != make_schedule(8, 60, VEHICLES)


@pytest.mark.parametrize("seed", range(3))
def test_schedule_has_every_kind_at_every_target_and_in_every_state(seed: int) -> None:
    schedule = make_schedule(seed, 300, VEHICLES)
    assert {fault.kind for fault in schedule[: len(KINDS)]} == set(KINDS)
    assert {fault.target for fault in schedule} == {*VEHICLES, "coordinator", "broker", EVERYONE}
    kills = {fault.state for fault in schedule if fault.kind in ("coordinator-kill", "coordinator-crash")}
    assert kills == {"any", *STATES}
    assert all(fault.count > 0 for fault in schedule if fault.kind.endswith("crash"))


# The road


class Echo(socketserver.BaseRequestHandler):
    """Says back what it hears."""

    def handle(self) -> None:
        while heard := self.request.recv(4096):
            self.request.sendall(heard)


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Echo) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        proxy = Proxy("127.0.0.1", server.server_address[1])
        yield proxy
        proxy.close()
        server.shutdown()


def test_proxy_ends_connections_and_refuses_new_ones_while_the_road_is_cut(proxy: Proxy) -> None:
    def says(port: int, words: bytes) -> bytes:
        with socket.create_connection(("127.0.0.1", port), 5) as road:
            road.sendall(words)
            return _heard(road)

    port, other = proxy.open("v0"), proxy.open("v1")
    with socket.create_connection(("127.0.0.1", port), 5) as road:
        road.sendall(b"hello")
        assert _heard(road) == b"hello"
        proxy.cut("v0")
        assert _heard(road) == b""
    with socket.create_connection(("127.0.0.1", port), 5) as road:
        assert _heard(road) == b""
    assert says(other, b"other") == b"other"
    proxy.mend("v0")
    assert says(port, b"again") == b"again"


def test_proxy_delivers_what_was_sent_when_a_stall_ends(proxy: Proxy) -> None:
    with socket.create_connection(("127.0.0.1", proxy.open("v0")), 5) as road:
        proxy.stall("v0")
        road.sendall(b"patience")
        road.settimeout(0.2)
        with pytest.raises(TimeoutError):
            road.recv(10)
        proxy.mend("v0")
        road.settimeout(5)
        assert road.recv(10) == b"patience"


def _heard(road: socket.socket) -> bytes:
    """Return what comes next; nothing, when the connection has ended."""
    try:
        return road.recv(10)
    except ConnectionError:
        return b""


# The transport


class Rig:
    """A sender behind a faulty transport, a receiver behind another, and the broker between them."""

    def __init__(self, folder: Path) -> None:
        self.hub = MemoryHub()
        self.heard: list[bytes] = []
        self.crashes: list[int] = []
        self.files = {who: MischiefFile(folder / f"{who}.json") for who in ("sender", "receiver")}
        self.sender = FaultyTransport(
            MemoryTransport(self.hub, Link("mqtt://memory", "sender")),
            MischiefFile(folder / "sender.json", self._moment),
            lambda: self.crashes.append(len(self.heard)),
        )
        self.receiver = FaultyTransport(
            MemoryTransport(self.hub, Link("mqtt://memory", "receiver")),
            MischiefFile(folder / "receiver.json", self._moment),
        )
        self.now = 0.0
        self.receiver.subscribe("t/#")
        self.receiver.start(Handlers(self._take, lambda: None, lambda _why: None))
        self.sender.start(Handlers(lambda _message: None, lambda: None, lambda _why: None))
        self.hub.pump()

    def _moment(self) -> float:
        self.now += 1.0  # the file is looked at every time
        return self.now

    def _take(self, message: Message) -> None:
        self.heard.append(message.payload)

    def say(self, *payloads: bytes, topic: str = "t/1", retain: bool = False) -> list[bytes]:
        for payload in payloads:
            self.sender.publish(topic, payload, retain=retain)
        self.hub.pump()
        return self.heard


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


@pytest.mark.parametrize("who", ["sender", "receiver"])
def test_faulty_transport_loses_doubles_and_reorders_as_it_is_told(rig: Rig, who: str) -> None:
    rig.files[who].change(loss=1.0)
    assert rig.say(b"lost") == []
    rig.files[who].change(loss=0.0, duplicate=1.0)
    assert rig.say(b"twice") == [b"twice", b"twice"]
    rig.files[who].change(duplicate=0.0, reorder=1.0)
    rig.say(b"late")
    rig.files[who].change(reorder=0.0)
    assert rig.say(b"early")[2:] == [b"early", b"late"]
    rig.files[who].change(reorder=1.0)
    rig.say(b"alone")

    def overdue() -> bool:
        rig.hub.pump()
        return len(rig.heard) == 5

    eventually(overdue, "what nothing overtakes is handed over", 10)


def test_faulty_transport_spares_states_and_what_is_retained(rig: Rig) -> None:
    rig.files["sender"].change(loss=1.0)
    rig.files["receiver"].change(reorder=1.0)
    rig.say(b"birth", topic="t/state")
    rig.sender.publish("t/kept", b"kept", retain=True)
    rig.hub.pump()
    assert rig.hub.retained == {"t/kept": b"kept"}
    assert rig.heard == [b"birth"], "what arrives live can be held back, whatever the broker keeps of it"


def test_faulty_transport_crashes_once_before_the_publish_that_was_named(rig: Rig) -> None:
    rig.files["sender"].change(crash_at=2, crash_topic="/7")
    rig.say(b"1", topic="t/1")
    rig.say(b"2", topic="t/7")
    assert rig.crashes == []
    rig.say(b"3", topic="t/7")
    assert rig.crashes == [2]
    rig.say(b"4", topic="t/7")
    assert len(rig.crashes) == 1


# The processes under test


def test_child_lets_the_wall_clock_jump_and_nothing_else(tmp_path: Path) -> None:
    MischiefFile(tmp_path / "m.json").change(wall_offset=-1e9)
    code = (
        "import sys, time; from pathlib import Path; before = time.time(); steady = time.monotonic();"
        "from lab.chaos.child import install; install(Path(sys.argv[1]));"
        "from coordinator.main import PahoTransport; from edge_agent.runner import PahoTransport as other;"
        "print(round((time.time() - before) / 1e9), time.monotonic() - steady < 60, PahoTransport is other)"
    )
    told = python(code, str(tmp_path / "m.json"))
    assert told.stdout.split() == ["-1", "True", "True"]


def test_deployed_processes_know_no_faults() -> None:
    code = (
        "import sys, os; import coordinator.main, edge_agent.runner, console.main;"
        f"assert 'lab.chaos.faulty_transport' not in sys.modules; assert {VARIABLE!r} in os.environ;"
        "print(coordinator.main.PahoTransport.__module__)"
    )
    told = python(code, environment={VARIABLE: "anything"})
    assert told.stdout.strip() == "broker.paho_transport"
