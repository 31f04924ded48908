"""A vehicle enrols and renews over real HTTPS, by hand with files, and through the command line."""

from __future__ import annotations

import contextlib
import json
import stat
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from broker.identity import check_owner, load_identity
from console.main import run
from edge_agent.enrol import EnrolmentError, enrol, renew
from schemas.trust.identity import Token
from tests.support.authorities import HOSTS, FleetCa, serial_of
from tests.support.coordinator_http import enrolling


@dataclass
class Served:
    ca: FleetCa
    url: str


@contextlib.contextmanager
def opened(ca: FleetCa, hosts: tuple[str, ...] = HOSTS) -> Iterator[Served]:
    with enrolling(ca.authority, ca.identity("coordinator", "cloud", hosts=hosts)) as url:
        yield Served(ca, url)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with opened(FleetCa(tmp_path_factory.mktemp("authority"))) as made:
        yield made


def test_vehicle_enrols_with_its_token_and_keeps_its_key_to_itself(served, tmp_path):
    token = served.ca.authority.token("v1")
    ends = enrol(tmp_path / "id", token, served.url)
    identity = check_owner(tmp_path / "id", "agent", "v1")
    assert identity is not None
    assert identity.ends == ends
    assert identity.crl == served.ca.authority.crl_pem
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "id").iterdir()} == {0o600}
    assert stat.S_IMODE((tmp_path / "id").stat().st_mode) == 0o700
    secret = (tmp_path / "id" / "key.pem").read_bytes().splitlines()[1]
    kept = [path.read_bytes() for path in served.ca.authority.folder.rglob("*") if path.is_file()]
    assert not any(secret in content for content in kept)


def test_lost_answer_is_asked_for_again_with_the_same_key(served, tmp_path):
    token = served.ca.authority.token("v2")
    folder = tmp_path / "id"
    enrol(folder, token, served.url)
    serial = serial_of(folder)
    (folder / "cert.pem").unlink()  # as if the answer had never come
    enrol(folder, token, served.url)
    assert serial_of(folder) == serial
    with pytest.raises(EnrolmentError, match=r"refuses \(403\): the token was used"):
        enrol(tmp_path / "thief", token, served.url)
    assert not (tmp_path / "thief" / "cert.pem").exists()


def test_vehicle_says_nothing_to_an_authority_that_its_token_does_not_name(served, tmp_path):
    with (
        opened(FleetCa(tmp_path / "impostor")) as impostor,
        pytest.raises(EnrolmentError, match=r"not the authority that made the token.*nothing was sent"),
    ):
        enrol(tmp_path / "id", served.ca.authority.token("v3"), impostor.url)
    assert not (tmp_path / "id").exists()


def test_server_that_shows_the_right_ca_without_its_key_learns_no_token(served, tmp_path):
    # An impostor that repeats the CA's certificate, which is public, but has its own certificate for the host.
    impostor = FleetCa(tmp_path / "impostor")
    identity = impostor.identity("coordinator", "cloud", hosts=HOSTS)
    impostor.authority.ca_pem = served.ca.authority.ca_pem
    with (
        enrolling(impostor.authority, identity) as url,
        pytest.raises(EnrolmentError, match="from a CA that is not ours"),
    ):
        enrol(tmp_path / "id", served.ca.authority.token("v4"), url)


def test_vehicle_renews_for_a_new_key_and_hears_of_revocations(served, tmp_path):
    folder = tmp_path / "id"
    enrol(folder, served.ca.authority.token("v6"), served.url)
    before, key = serial_of(folder), (folder / "key.pem").read_bytes()
    served.ca.identity("agent", "v7")
    served.ca.authority.revoke("v7")
    renew(folder, served.url)
    assert serial_of(folder) != before
    assert (folder / "key.pem").read_bytes() != key
    assert load_identity(folder).crl == served.ca.authority.crl_pem
    served.ca.authority.revoke("v6", "stolen")
    with pytest.raises(EnrolmentError, match=r"revoked \(stolen\): enrol again with a new token"):
        renew(folder, served.url)


def test_command_line_enrols_renews_revokes_and_lists(served, tmp_path, capsys):
    ca, state = ["--ca-dir", str(served.ca.authority.folder)], ["--state-dir", str(tmp_path / "state")]
    assert run(["ca", "token", "--agent", "v10", *ca]) == 0
    made = capsys.readouterr()
    token = made.out.strip()
    assert Token.parse(token).agent == "v10"
    assert "--authority https://HOST:PORT (the address that `glassfleet ca serve` prints)" in made.err
    who = ["--id", "v10", *state, "--authority", served.url]
    assert run(["agent", "enrol", *who, "--token", token]) == 0
    assert run(["agent", "enrol", *who, "--token", token]) == 2, "it has a certificate"
    assert run(["agent", "enrol", "--id", "v11", *state, "--authority", served.url, "--token", token]) == 2
    capsys.readouterr()
    assert run(["agent", "renew", *who, "--within", "30"]) == 0
    assert "nothing to do" in capsys.readouterr().out
    assert run(["agent", "renew", *who]) == 0
    assert run(["ca", "revoke", "v10", "--reason", "stolen", *ca]) == 0
    assert run(["agent", "renew", *who]) == 4
    capsys.readouterr()
    assert run(["ca", "list", "--json", *ca]) == 0
    states = [one["state"] for one in json.loads(capsys.readouterr().out) if one["id"] == "v10"]
    assert states == ["revoked (stolen)", "revoked (stolen)"]
