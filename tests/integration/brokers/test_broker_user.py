"""A Mosquitto that runs as another user than the operator: it can read what the operator changed, or is not told."""

from __future__ import annotations

import os
import pwd
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from broker.paho_transport import connect_once
from broker.port import Link
from broker.servers.acl import certificate_acl
from broker.servers.mosquitto import MosquittoProcess
from broker.servers.revocation import reload
from broker.tls import tls_of
from console.main import run
from coordinator.authority.store import Authority
from schemas.errors import StorageError
from schemas.topics import Topics
from tests.support.fleet import FleetCa

pytestmark = pytest.mark.mosquitto
IS_ROOT = os.geteuid() == 0


def service_user() -> str:
    """The user that the packages of Mosquitto make, or another one without rights."""
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "mosquitto" if "mosquitto" in names else "nobody"


@dataclass
class Fleet:
    ca: FleetCa
    broker: MosquittoProcess
    identity: Path
    client: Path

    @property
    def folder(self) -> Path:
        return self.broker.config.state_dir

    def answers(self) -> bool:
        return bool(connect_once(Link(self.broker.url, "v1", tls=tls_of(self.client)), 5.0))


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    # Not below the tests' own folder, which is root's alone. Who is not root runs the broker as itself.
    place = Path(tempfile.mkdtemp())
    place.chmod(0o755)
    ca = FleetCa(place)
    identity, client = ca.identity("broker", "b"), ca.identity("agent", "v1")
    acl = certificate_acl(Topics("fleet"), coordinators=["cloud"])
    broker = MosquittoProcess(place / "state", identity=identity, acl=acl)
    if IS_ROOT:
        conf = place / "state" / "mosquitto.conf"
        conf.write_text(conf.read_text(encoding="utf-8").replace("user root", f"user {service_user()}"))
        for path in (place / "state", identity, *(place / "state").iterdir(), *identity.iterdir()):
            shutil.chown(path, service_user())
    try:
        broker.start()
        yield Fleet(ca, broker, identity, client)
    finally:
        broker.stop()
        shutil.rmtree(place)


def test_broker_of_another_user_goes_on_when_root_changes_its_authority(fleet):
    assert fleet.answers()
    after = Authority.create(fleet.folder.parent / "next", after=fleet.ca.authority.folder)
    pem = fleet.folder.parent / "next.pem"
    pem.write_bytes(after.ca_pem + after.crl_pem)
    former = os.umask(0o077)
    try:
        assert run(["ca", "trust", str(pem), "--into", str(fleet.identity), "--into", str(fleet.client)]) == 0
        assert run(["ca", "renew", str(fleet.identity), "--ca-dir", str(after.folder)]) == 0
        assert "SIGHUP" in reload(fleet.folder, after.crl_pem, deny=["v9"])
    finally:
        os.umask(former)
    assert fleet.answers()
    assert run(["ca", "renew", str(fleet.client), "--ca-dir", str(after.folder)]) == 0
    assert fleet.answers()


@pytest.mark.parametrize("name", ["key.pem", "cert.pem"])
def test_broker_is_not_told_when_its_user_cannot_read_what_it_would(fleet, name):
    hidden = fleet.identity / name
    status = hidden.stat()
    if IS_ROOT:
        os.chown(hidden, 0, 0)
    hidden.chmod(0o600 if IS_ROOT else 0)
    with pytest.raises(StorageError, match="was not told") as told:
        reload(fleet.folder, fleet.ca.authority.refresh_crl())
    assert str(hidden) in str(told.value)
    assert "chown" in str(told.value)
    assert fleet.answers()
    os.chown(hidden, status.st_uid, status.st_gid)
    hidden.chmod(0o600)
    assert "SIGHUP" in reload(fleet.folder, None)
    assert fleet.answers()
