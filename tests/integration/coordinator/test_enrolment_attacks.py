"""Attacks on enrolment over real HTTPS: slow and idle peers, a token used twice at once, servers that are not it."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from coordinator.authority import web
from coordinator.authority.store import Authority
from coordinator.http.server import HttpLimits
from edge_agent.enrol import EnrolmentError, enrol, renew
from schemas.errors import UsageError, WireError
from schemas.trust.identity import make_request, new_key
from schemas.trust.owner import Owner
from tests.support.authorities import HOSTS, FleetCa
from tests.support.coordinator_http import enrolling, is_closed


@pytest.fixture
def ca(tmp_path: Path) -> FleetCa:
    return FleetCa(tmp_path / "authority")


def own(ca: FleetCa) -> Path:
    return ca.identity("coordinator", "cloud", hosts=HOSTS)


@pytest.fixture
def url(ca: FleetCa) -> Iterator[str]:
    with enrolling(ca.authority, own(ca)) as made:
        yield made


def plain(url: str) -> socket.socket:
    return socket.create_connection(("localhost", int(url.rpartition(":")[2])), 10)


def dial(url: str, ca: FleetCa) -> ssl.SSLSocket:
    context = ssl.create_default_context(cadata=ca.authority.ca_pem.decode())
    return context.wrap_socket(plain(url), server_hostname="localhost")


SLOW = {
    "a header": b"GET /v1/ca HTTP/1.1\r\nHost: x\r\n",
    "a body": b"POST /v1/enrol HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{",
    "nothing": b"",
}


@pytest.mark.parametrize("what", SLOW)
def test_vehicle_enrols_while_slow_peers_hold_every_place(ca, tmp_path, what):
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(enrolling(ca.authority, own(ca), HttpLimits(connections=10)))
        held = [stack.enter_context(dial(url, ca)) for _ in range(15)]
        for peer in held:
            with contextlib.suppress(OSError):  # the first ones have been told to go
                peer.sendall(SLOW[what])
        enrol(tmp_path / "id", ca.authority.token("v1"), url)
        assert is_closed(held[0])


def test_peer_that_never_begins_tls_is_sent_away(ca):
    with enrolling(ca.authority, own(ca), HttpLimits(handshake=0.3)) as url, plain(url) as peer:
        assert is_closed(peer)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/v1/enrol", 405), ("DELETE", "/v1/ca", 405), ("PUT", "/v1/crl", 405), ("TRACE", "/v1/ca", 405),
     ("GET", "/v1/../ca-key.pem", 404), ("GET", "/ca-key.pem", 404), ("GET", "/docs", 404), ("GET", "/", 404)],
)  # fmt: skip
def test_server_offers_nothing_else(ca, url, method, path, status):
    context = ssl.create_default_context(cadata=ca.authority.ca_pem.decode())
    connection = http.client.HTTPSConnection(url.removeprefix("https://"), context=context, timeout=10)
    connection.request(method, path)
    assert connection.getresponse().status == status
    connection.close()


@pytest.mark.parametrize(
    "header",
    [b"Transfer-Encoding: xchunked", b"Content-Length: 99999999999999999999", b"Content-Length: -1",
     b"Content-Length: \xb2", b"Content-Length: 5\r\nContent-Length: 6"],
)  # fmt: skip
def test_server_refuses_lengths_that_lie(ca, url, header):
    with dial(url, ca) as peer:
        peer.settimeout(10)
        with contextlib.suppress(OSError):
            peer.sendall(b"POST /v1/enrol HTTP/1.1\r\nHost: x\r\n" + header + b"\r\n\r\n")
        status = peer.recv(100).split(b" ", 2)[1]
    assert status in (b"400", b"413")


def test_server_speaks_no_tls_below_1_3(ca, url):
    context = ssl.create_default_context(cadata=ca.authority.ca_pem.decode())
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with (
        plain(url) as connection,
        pytest.raises(ssl.SSLError),
        context.wrap_socket(connection, server_hostname="localhost"),
    ):
        pass


def test_token_that_many_use_at_once_makes_one_certificate(ca, url, tmp_path):
    token = ca.authority.token("v1")
    outcomes: list[str] = []
    start = threading.Barrier(8)

    def attempt(number: int) -> None:
        start.wait()
        try:
            enrol(tmp_path / str(number), token, url)
            outcomes.append("enrolled")
        except EnrolmentError as fault:
            outcomes.append("was used" if "was used" in str(fault) else str(fault))

    threads = [threading.Thread(target=attempt, args=[number]) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["enrolled", *["was used"] * 7]
    assert [one.id for one in ca.authority.issued() if one.role == "agent"] == ["v1"]


def test_secret_of_a_token_is_in_no_log_and_no_file(ca, url, tmp_path):
    token, other = ca.authority.token("v1"), ca.authority.token("v2")
    with structlog.testing.capture_logs() as lines:
        enrol(tmp_path / "id", token, url)
        for number, wrong in enumerate([token, type(token)("v1", other.fingerprint, other.secret)]):
            with pytest.raises(EnrolmentError, match="403"):
                enrol(tmp_path / f"thief-{number}", wrong, url)
    assert [line["event"] for line in lines] == ["enrolled", "refused", "refused"]
    kept = [path.read_bytes() for path in ca.authority.folder.rglob("*") if path.is_file()]
    assert token.secret not in repr(token)
    for secret in (token.secret, other.secret):
        assert secret not in str(lines)
        assert not any(secret.encode() in content for content in kept)


def test_broker_on_the_same_host_cannot_pass_for_the_authority(ca, tmp_path, monkeypatch):
    # Its certificate is good, for this very host; it would hear the token, enrol in the vehicle's place, and hand out
    # a CA of its own.
    monkeypatch.setattr(web, "check_owner", lambda *_: None)
    token = ca.authority.token("v1")
    with enrolling(ca.authority, ca.identity("broker", "broker")) as url:
        with pytest.raises(EnrolmentError, match=r"is broker broker, not the authority's server.*Nothing was sent"):
            enrol(tmp_path / "id", token, url)
        with pytest.raises(EnrolmentError, match="is broker broker"):
            renew(ca.identity("agent", "v2"), url)
    assert not (tmp_path / "id" / "cert.pem").exists()
    with enrolling(ca.authority, ca.identity("coordinator", "cloud", hosts=HOSTS)) as url:
        enrol(tmp_path / "id", token, url)  # the token was not used


class Usurper:
    """Has a coordinator's stolen certificate, but another CA's key; shows the right CA when it is asked for that."""

    def __init__(self, real: Authority, own: Authority) -> None:
        self.own = own
        self.answers = iter([real.ca_pem])
        self.crl_pem = own.crl_pem

    @property
    def ca_pem(self) -> bytes:
        return next(self.answers, self.own.ca_pem)

    def enrol(self, request: bytes, token: str, days: float) -> bytes:
        del token
        return self._issue(request, days)

    def renew(self, request: bytes, certificate: bytes, signature: bytes, days: float, *, most: int) -> bytes:
        del certificate, signature, most
        return self._issue(request, days)

    def _issue(self, request: bytes, days: float) -> bytes:
        from schemas.trust.identity import read_request

        owner, key = read_request(request)
        return self.own.issue(owner, key, days=days)


def test_vehicle_trusts_no_other_authority_though_a_coordinator_names_one(ca, tmp_path):
    folder, stolen = ca.identity("agent", "v2"), ca.identity("coordinator", "cloud", hosts=HOSTS)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    own = FleetCa(tmp_path / "usurper").authority
    with enrolling(Usurper(ca.authority, own), stolen) as url:
        with pytest.raises(UsageError, match="nothing was stored"):
            enrol(tmp_path / "id", ca.authority.token("v1"), url)
        with pytest.raises(UsageError, match="nothing was stored"):
            renew(folder, url)
    assert not (tmp_path / "id" / "cert.pem").exists()
    left = {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "key.next"}  # for another try
    assert left == before


def test_token_of_an_id_that_became_another_roles_is_not_taken(ca):
    token = ca.authority.token("anna")
    ca.identity("operator", "anna")
    with pytest.raises(WireError, match="the id anna belongs to role operator"):
        ca.authority.enrol(make_request(new_key(), Owner("agent", "anna")), token.secret)
