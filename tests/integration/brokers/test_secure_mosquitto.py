"""Mosquitto with mutual TLS: who may connect, what each may publish and hear, and how a vehicle is shut out."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from broker.identity import save_identity
from broker.paho_transport import PahoTransport, connect_once
from broker.port import Link
from broker.servers.mosquitto import MosquittoProcess, certificate_acl
from broker.servers.revocation import reload
from broker.tls import Tls, tls_of
from console.main import run as command
from schemas.errors import BrokerError
from schemas.topics import Topics
from tests.support.authorities import FleetCa
from tests.support.processes import eventually
from tests.support.transports import Client, connected

pytestmark = pytest.mark.needs("mosquitto")
TOPICS = Topics("fleet")
DIGEST = "0" * 64
ACL = certificate_acl(TOPICS, coordinators=["cloud"], operators=["anna"])
WRITERS = {
    TOPICS.coordinator_state(): {"cloud"},
    TOPICS.agent_state("v1"): {"v1"},
    TOPICS.agent_state("v2"): {"v2"},
    TOPICS.request("r"): {"cloud"},
    TOPICS.contribution("v1"): {"v1", "cloud"},
    TOPICS.contribution("v2"): {"v2", "cloud"},
    TOPICS.receipt("v1"): {"cloud"},
    TOPICS.receipt("v2"): {"cloud"},
    TOPICS.blob(DIGEST, 0): {"cloud"},
    TOPICS.model_current("m"): {"cloud"},
    TOPICS.model_version("m", 1): {"cloud"},
    TOPICS.evaluation("v1"): {"v1", "cloud"},
    TOPICS.evaluation("v2"): {"v2", "cloud"},
    TOPICS.forecast("v1"): {"v1"},
    TOPICS.forecast("v2"): {"v2"},
    TOPICS.prefix + "agent/v1/anything": set(),
    TOPICS.prefix + "run/r/anything": set(),
}
"""Who may publish; written by hand, not from the rules."""

ALL = {"cloud", "v1", "v2", "anna"}
READERS = {
    TOPICS.coordinator_state(): ALL,
    TOPICS.agent_state("v1"): {"cloud", "anna"},
    TOPICS.agent_state("v2"): {"cloud", "anna"},
    TOPICS.request("r"): ALL,
    TOPICS.contribution("v1"): {"cloud", "anna"},
    TOPICS.contribution("v2"): {"cloud", "anna"},
    TOPICS.receipt("v1"): {"v1", "anna"},
    TOPICS.receipt("v2"): {"v2", "anna"},
    TOPICS.blob(DIGEST, 0): ALL,
    TOPICS.model_current("m"): ALL,
    TOPICS.model_version("m", 1): ALL,
    TOPICS.evaluation("v1"): {"cloud", "anna"},
    TOPICS.evaluation("v2"): {"cloud", "anna"},
    TOPICS.forecast("v1"): {"cloud", "anna"},
    TOPICS.forecast("v2"): {"cloud", "anna"},
}


@dataclass
class World:
    ca: FleetCa
    broker: MosquittoProcess
    folders: dict[str, Path]

    def link(self, who: str, client_id: str = "x", session_expiry: int = 0) -> Link:
        # Sessions end with their connections, unless asked otherwise: Mosquitto 2.0.11 corrupts its list of the
        # sessions that wait whenever it reads its rules again (docs/explanation/failure-model.md), and crashes later.
        return Link(self.broker.url, client_id, tls=tls_of(self.folders[who]), session_expiry=session_expiry)

    def client(self, who: str, *patterns: str, client_id: str = "x", **options) -> Client:
        return connected(self.link(who, client_id, **options), *patterns)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("fleet")
    ca = FleetCa(folder)
    roles = {"cloud": "coordinator", "v1": "agent", "v2": "agent", "v3": "agent", "v4": "agent", "anna": "operator"}
    folders = {name: ca.identity(role, name) for name, role in roles.items()}  # type: ignore[arg-type]
    broker = MosquittoProcess(folder / "state", identity=ca.identity("broker", "broker"), acl=ACL)
    broker.start()
    yield World(ca, broker, folders)
    broker.stop()


@pytest.fixture(scope="module")
def clients(world: World) -> Iterator[dict[str, Client]]:
    # Everybody asks for everything, in one wildcard and by name.
    made = {who: world.client(who, "#", "gf/1/#", *READERS) for who in sorted(ALL)}
    yield made
    for client in made.values():
        client.transport.stop()


def settled(clients: dict[str, Client], mark: bytes) -> None:
    """Wait until all have heard what was published so far: the broker works in order."""
    clients["cloud"].transport.publish(TOPICS.coordinator_state(), mark)
    for name, client in clients.items():
        eventually(lambda client=client: mark in client.payloads(TOPICS.coordinator_state()), f"{name} heard the mark")


def test_broker_passes_on_what_the_writer_may_publish_to_those_who_may_read_it_and_nothing_else(clients):
    for who, client in clients.items():
        for topic in WRITERS:
            client.transport.publish(topic, who.encode())
        assert client.transport.flush(30)
    settled(clients, b"mark")

    def heard(topic: str, writer: str) -> set[str]:
        return {who for who, client in clients.items() if writer.encode() in client.payloads(topic)}

    passed_on = {topic: {who for who in ALL if "anna" in heard(topic, who)} for topic in WRITERS}
    assert passed_on == WRITERS
    assert {topic: heard(topic, next(iter(WRITERS[topic]))) for topic in READERS} == READERS


def test_retained_message_is_kept_from_who_may_not_read_it(world, clients):
    clients["v1"].transport.publish(TOPICS.agent_state("v1"), b"retained birth", retain=True)
    assert clients["v1"].transport.flush(30)
    late = world.client("v3", "gf/1/#", TOPICS.agent_state("v1"))
    clients["cloud"].transport.publish(TOPICS.request("late"), b"late")
    eventually(lambda: late.payloads(TOPICS.request("late")), "the request came")
    assert late.payloads(TOPICS.agent_state("v1")) == []
    late.transport.stop()
    clients["v1"].transport.publish(TOPICS.agent_state("v1"), b"", retain=True)


def test_every_topic_of_the_protocol_is_in_the_tables():
    made = {TOPICS.parse(topic).kind for topic in READERS}
    kinds = {"coordinator-state", "agent-state", "request", "contribution", "receipt", "blob", "model-current"}
    assert made == kinds | {"model-version", "evaluation", "forecast"}


@pytest.fixture(scope="module")
def strangers(world: World, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tls | None]:
    other = FleetCa(tmp_path_factory.mktemp("other"), "other CA")
    foreign = other.identity("agent", "v1")
    namesake = FleetCa(tmp_path_factory.mktemp("namesake")).identity("agent", "v1")
    ca = str(world.folders["v1"] / "ca.pem")
    return {
        "none": Tls(ca),
        "foreign": tls_of(foreign, Path(ca)),
        "from a CA of the same name": tls_of(namesake, Path(ca)),
        "expired": tls_of(world.ca.identity("agent", "old", days=1, ago=3)),
        "for a server only": tls_of(world.ca.folder / "broker"),
        "that trusts another CA": tls_of(world.folders["v1"], foreign / "ca.pem"),
    }


@pytest.mark.parametrize(
    ("which", "says"),
    [
        ("none", "asks for a client certificate: give --identity"),
        ("foreign", "from another fleet"),
        ("from a CA of the same name", "from another fleet"),
        ("expired", "our certificate has expired"),
        ("for a server only", "not for a client"),
        ("that trusts another CA", "from a CA that is not ours"),
    ],
)
@pytest.mark.parametrize("protocol", ["5", "3.1.1"])
def test_stranger_is_refused_and_told_why(world, strangers, which, says, protocol):
    with pytest.raises(BrokerError, match=says):
        connect_once(Link(world.broker.url, "x", tls=strangers[which], protocol=protocol))


def test_client_refuses_a_broker_of_another_name(world):
    url = world.broker.url.replace("localhost", "127.0.0.2")
    with pytest.raises(BrokerError, match=r"another address|nothing listens") as caught:
        connect_once(Link(url, "x", tls=tls_of(world.folders["v1"])))
    assert caught.value.exit_code == 4
    other = MosquittoProcess(
        world.ca.folder / "elsewhere",
        identity=world.ca.identity("broker", "elsewhere", hosts=("elsewhere.example",), where="elsewhere-id"),
        acl=ACL,
    )
    with pytest.raises(BrokerError, match="another host name: use a name that is in it, or issue it again with --host"):
        other.start(3)


def test_client_id_of_another_vehicle_does_not_throw_it_out(world, clients):
    before = clients["v1"].connects
    thief = world.client("v3", TOPICS.request("+"), client_id="v1")
    clients["cloud"].transport.publish(TOPICS.request("theft"), b"asked")
    eventually(lambda: b"asked" in clients["v1"].payloads(TOPICS.request("theft")), "v1 still hears")
    assert clients["v1"].connects == before
    thief.transport.stop()


def test_revoked_vehicle_is_shut_out_at_once_and_the_others_go_on(world, clients):
    stolen = world.client("v4", TOPICS.request("+"))
    stolen.transport.publish(TOPICS.evaluation("v4"), b"before")
    eventually(lambda: b"before" in clients["cloud"].payloads(TOPICS.evaluation("v4")), "it could write")
    before = {name: client.connects for name, client in clients.items()}
    world.ca.authority.revoke("v4", "stolen")
    text = reload(world.broker.config.state_dir, world.ca.authority.crl_pem, deny=["v4"])
    assert text == "the list revokes 1; denied: v4; the broker was told (SIGHUP)"

    def is_refused() -> bool:
        try:
            connect_once(world.link("v4"))
        except BrokerError as fault:
            result.append(str(fault))
        return bool(result)

    result: list[str] = []
    eventually(is_refused, "the list is honoured")
    assert "certificate was revoked" in result[0]
    stolen.transport.publish(TOPICS.evaluation("v4"), b"after")
    clients["cloud"].transport.publish(TOPICS.request("secret"), b"secret")
    settled(clients, b"mark revoked")
    assert b"after" not in clients["cloud"].payloads(TOPICS.evaluation("v4"))
    assert stolen.payloads(TOPICS.request("secret")) == []
    assert {name: client.connects for name, client in clients.items()} == before
    stolen.transport.stop()
    assert connect_once(world.link("v3"))


def is_refused(world: World, who: str) -> bool:
    try:
        connect_once(world.link(who))
    except BrokerError as fault:
        return "certificate was revoked" in str(fault)
    return False


def test_one_command_revokes_at_broker_and_coordinator(world, clients, tmp_path):
    world.ca.identity("agent", "v5")
    lost = world.folders | {"v5": world.ca.folder / "v5"}
    mine = World(world.ca, world.broker, lost)
    stolen = mine.client("v5")
    state, cloud = world.broker.config.state_dir, world.folders["cloud"]
    revoke = ["ca", "revoke", "v5", "--ca-dir", str(world.ca.authority.folder)]
    assert command([*revoke, "--into", str(state), "--into", str(cloud)]) == 0
    assert (cloud / "crl.pem").read_bytes() == world.ca.authority.crl_pem
    eventually(lambda: is_refused(mine, "v5"), "the list is honoured")
    # A probe that was let in just before may have taken the connection's place: then it is out altogether.
    stolen.transport.publish(TOPICS.evaluation("v5"), b"after")
    settled(clients, b"mark one command")
    assert b"after" not in clients["cloud"].payloads(TOPICS.evaluation("v5"))
    stolen.transport.stop()
    # On another machine, the list is carried over; what is neither a process's nor a broker's is misuse.
    crl = ["ca", "crl", "--from", str(world.ca.authority.folder / "crl.pem"), "--ca-dir", str(tmp_path / "none")]
    assert command([*crl, "--into", str(world.folders["anna"])]) == 0
    assert (world.folders["anna"] / "crl.pem").read_bytes() == world.ca.authority.crl_pem
    assert command([*crl, "--into", str(tmp_path)]) == 2
    foreign = FleetCa(tmp_path / "other").identity("coordinator", "cloud")
    assert command([*crl, "--into", str(foreign)]) == 2


def test_session_outlives_a_killed_broker_over_tls(world):
    broker = MosquittoProcess(world.ca.folder / "second", identity=world.ca.folder / "broker", acl=ACL)
    broker.start()
    mine = World(world.ca, broker, world.folders)
    try:
        agent, cloud = mine.client("v3", TOPICS.request("+"), session_expiry=3600), mine.client("cloud")
        # Heard once, so that the subscription stands.
        cloud.transport.publish(TOPICS.request("a"), b"0")
        eventually(lambda: agent.payloads() == [b"0"], "subscribed")
        agent.transport.stop()
        cloud.transport.publish(TOPICS.request("a"), b"1")
        assert cloud.transport.flush(30)
        broker.restart()
        eventually(lambda: cloud.connects == 2, "cloud is back")
        os.kill(broker.pid, signal.SIGKILL)
        eventually(lambda: not broker.is_running, "killed")
        broker.start()
        eventually(lambda: cloud.connects == 3, "cloud is back again")
        again = mine.client("v3", session_expiry=3600)
        cloud.transport.publish(TOPICS.request("a"), b"2")
        eventually(lambda: again.payloads() == [b"1", b"2"], "what waited came, over the session that was kept")
        again.transport.stop()
        cloud.transport.stop()
    finally:
        broker.stop()


def test_renewed_certificate_counts_without_a_restart(world, said):
    folder = world.ca.identity("agent", "lapsed", days=1, ago=3)
    client = Client(
        PahoTransport(Link(world.broker.url, "x", tls=tls_of(folder), reconnect_longest=0.2, session_expiry=0))
    )
    client.start()
    eventually(lambda: any(line["event"] == "broker-unreachable" for line in said), "refused with the old one")
    assert client.connects == 0
    fresh = world.ca.identity("agent", "lapsed", where="fresh")
    save_identity(folder, key=(fresh / "key.pem").read_bytes(), certificate=(fresh / "cert.pem").read_bytes())
    eventually(lambda: client.connects, "connected with the new one")
    client.transport.stop()
