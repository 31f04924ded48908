"""The fleet's authority: who gets a certificate, for what, and who does not get one."""

from __future__ import annotations

import base64
import datetime as dt
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID

from coordinator.authority.store import CRL_FILE, Authority
from schemas.errors import GlassfleetError, NotFoundError, StorageError, UsageError, WireError
from schemas.trust.certificates import owner_of
from schemas.trust.identity import load_key, make_request, new_key, prove_renewal, read_request
from schemas.trust.owner import Owner, Role
from schemas.trust.signing import Signer, Verifier
from tests.support.authorities import Calendar, number_in

V1 = Owner("agent", "v1")


UNKNOWN_KEY = (bytes.fromhex("302a300506032b6570"), bytes.fromhex("302a300506032b6501"))


@pytest.fixture
def clock() -> Calendar:
    return Calendar()


@pytest.fixture
def authority(tmp_path: Path, clock: Calendar) -> Authority:
    return Authority.create(tmp_path / "ca", "test CA", clock=clock)


def enrolled(authority: Authority, name: str = "v1") -> tuple[bytes, bytes]:
    key = new_key()
    token = authority.token(name)
    return key, authority.enrol(make_request(key, Owner("agent", name)), token.secret)


@pytest.mark.parametrize(
    ("role", "hosts", "uses"),
    [
        ("agent", [], {ExtendedKeyUsageOID.CLIENT_AUTH}),
        ("operator", [], {ExtendedKeyUsageOID.CLIENT_AUTH}),
        ("coordinator", [], {ExtendedKeyUsageOID.CLIENT_AUTH}),
        ("coordinator", ["localhost"], {ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH}),
        ("broker", ["localhost", "::1"], {ExtendedKeyUsageOID.SERVER_AUTH}),
    ],
)
def test_certificate_is_good_for_its_role_alone(authority, role, hosts, uses):
    made = authority.issue(Owner(role, "x"), load_key(new_key()).public_key(), hosts=hosts)
    certificate = x509.load_pem_x509_certificate(made)
    assert set(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == uses
    assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


@pytest.mark.parametrize(("role", "hosts"), [("agent", ["localhost"]), ("operator", ["h"]), ("broker", [])])
def test_hosts_that_do_not_fit_the_role_are_misuse(authority, role, hosts):
    with pytest.raises(UsageError, match="--host"):
        authority.issue(Owner(role, "x"), load_key(new_key()).public_key(), hosts=hosts)


def test_token_for_another_vehicle_or_role_is_refused(authority):
    token = authority.token("v1")
    for owner in (Owner("agent", "v2"), Owner("coordinator", "v1")):
        with pytest.raises(WireError, match="the token is for agent v1"):
            authority.enrol(make_request(new_key(), owner), token.secret)
    with pytest.raises(WireError, match="unknown"):
        authority.enrol(make_request(new_key(), V1), "x" * 43)
    assert authority.issued() == []


def test_token_expires(authority, clock):
    token = authority.token("v1", hours=1)
    clock.skip(hours=1)
    with pytest.raises(WireError, match="expired"):
        authority.enrol(make_request(new_key(), V1), token.secret)


def test_expired_coordinator_can_be_revoked_as_its_key_can_date_a_model_back(authority, clock):
    key = load_key(new_key()).public_key()
    for owner in (Owner("coordinator", "cloud"), Owner("agent", "v1")):
        authority.issue(owner, key, days=1)
    clock.skip(days=2)
    assert [one.id for one in authority.revoke("cloud")] == ["cloud"]
    with pytest.raises(NotFoundError):
        authority.revoke("v1")


def test_revocation_that_was_cut_off_before_its_list_is_whole_when_it_is_said_again(authority):
    authority.issue(Owner("agent", "v1"), load_key(new_key()).public_key())
    before = authority.crl_pem
    gone = authority.revoke("v1", "stolen")
    (authority.folder / CRL_FILE).write_bytes(before)  # killed between register and list
    assert authority.revoke("v1", "stolen") == gone
    crl = x509.load_pem_x509_crl(authority.crl_pem)
    assert crl.get_revoked_certificate_by_serial_number(int(gone[0].serial, 16)) is not None


@pytest.mark.parametrize("first", ["agent", "coordinator", "operator"])
def test_id_belongs_to_one_role_for_ever(authority, clock, first):
    other: Role = "operator" if first != "operator" else "coordinator"
    authority.issue(Owner(first, "x"), load_key(new_key()).public_key())
    authority.revoke("x")
    clock.skip(days=4000 / 2)
    with pytest.raises(UsageError, match=f"belongs to role {first}"):
        authority.issue(Owner(other, "x"), load_key(new_key()).public_key())
    if first != "agent":
        with pytest.raises(UsageError, match="would take one for the other"):
            authority.token("x")


def test_renewal_needs_the_current_key_of_a_good_certificate(authority, clock):
    key, made = enrolled(authority)
    request = make_request(key, V1)
    clock.skip(days=300)
    renewed = authority.renew(request, made, prove_renewal(key, request))
    assert x509.load_pem_x509_certificate(renewed).not_valid_after_utc > clock.now + dt.timedelta(days=364)
    with pytest.raises(WireError, match="not signed by the certificate's key"):
        authority.renew(request, made, prove_renewal(new_key(), request))
    other = make_request(key, Owner("agent", "v2"))
    with pytest.raises(WireError, match="not agent v2's"):
        authority.renew(other, made, prove_renewal(key, other))
    clock.skip(days=100)
    with pytest.raises(WireError, match="expired: enrol again"):
        authority.renew(request, made, prove_renewal(key, request))
    authority.revoke("v1", "stolen")
    with pytest.raises(WireError, match="revoked"):
        authority.renew(request, renewed, prove_renewal(key, request))


DIES_AT_EACH_STEP = """
import os, sys
from pathlib import Path
from coordinator.authority.store import Authority

for step in range(1, 100):
    child = os.fork()
    if not child:
        left = step
        def look(event, _):
            global left
            if event in ("os.rename", "os.mkdir", "shutil.rmtree"):
                left -= 1
                if not left:
                    os._exit(9)
        sys.addaudithook(look)
        Authority.create(Path(sys.argv[1]) / str(step), "test CA")
        os._exit(0)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0:
        break
"""


def test_authority_is_whole_or_not_there_whenever_making_it_was_cut_off(clock, tmp_path):
    subprocess.run([sys.executable, "-c", DIES_AT_EACH_STEP, str(tmp_path)], check=True, timeout=120)
    steps = {int(path.name) for path in tmp_path.iterdir() if not path.name.startswith(".")}
    unfinished = set(range(1, max(steps))) - steps
    assert len(unfinished) > 4, "it was cut off at many steps"
    for step in range(1, max(steps) + 1):
        folder = tmp_path / str(step)
        made = (
            Authority.create(folder, "test CA", clock=clock) if step in unfinished else Authority(folder, clock=clock)
        )
        assert (made.issued(), made.name) == ([], "test CA")
        assert Verifier(made.ca_pem, clock.seconds).update_crl(made.crl_pem) == 0
        assert sorted(path.name for path in folder.iterdir()) == [
            "ca-key.pem", "ca.pem", "crl.pem", "lock", "register.json",
        ]  # fmt: skip


def test_authority_is_made_in_no_folder_that_has_something_in_it(authority):
    enrolled(authority)
    with pytest.raises(UsageError, match="has an authority already"):
        Authority.create(authority.folder, "x")
    (authority.folder / "ca.pem").unlink()
    before = sorted(authority.folder.rglob("*"))
    with pytest.raises(UsageError, match="is not empty"):
        Authority.create(authority.folder, "x")
    assert sorted(authority.folder.rglob("*")) == before
    with pytest.raises(NotFoundError, match="ca init"):
        Authority(authority.folder / "absent")


def respelt(certificate_pem: bytes, *changes: tuple[bytes, bytes]) -> bytes:
    """A certificate with other bytes in place of some; its signature fits no more, which a renewal does not ask."""
    der = x509.load_pem_x509_certificate(certificate_pem).public_bytes(Encoding.DER)
    for old, new in changes:
        assert old in der
        der = der.replace(old, new)
    return b"-----BEGIN CERTIFICATE-----\n" + base64.encodebytes(der) + b"-----END CERTIFICATE-----\n"


def test_renewal_with_a_certificate_of_an_unknown_kind_of_key_is_refused_by_name(authority):
    key, made = enrolled(authority)
    request = make_request(key, V1)
    with pytest.raises(WireError, match="key cannot be read") as fault:
        authority.renew(request, respelt(made, UNKNOWN_KEY), prove_renewal(key, request))
    assert fault.value.code == "bad-certificate"


def test_certificate_with_an_extension_twice_names_nobody(authority):
    _, made = enrolled(authority)
    # 2.5.29.37 and 2.5.29.17: extended key usage spelt as a second list of names.
    twice = respelt(made, (bytes.fromhex("0603551d25"), bytes.fromhex("0603551d11")))
    with pytest.raises(WireError, match="names no owner"):
        owner_of(x509.load_pem_x509_certificate(twice))


def test_revocation_lists_every_good_certificate_and_numbers_rise(authority, clock):
    _, first = enrolled(authority)
    clock.skip(days=1)
    key, second = enrolled(authority)
    before = number_in(authority.crl_pem)
    waiting = authority.token("v1")
    gone = authority.revoke("v1", "stolen")
    crl = x509.load_pem_x509_crl(authority.crl_pem)
    serials = {x509.load_pem_x509_certificate(pem).serial_number for pem in (first, second)}
    assert {entry.serial_number for entry in crl} == serials == {int(one.serial, 16) for one in gone}
    assert number_in(authority.crl_pem) == before + 1
    assert authority.fallen() == ["v1"]
    verifier = Verifier(authority.ca_pem, clock.seconds)
    verifier.update_crl(authority.crl_pem)
    with pytest.raises(WireError, match="revoked"):
        verifier.owner(Signer(key, second).certificate)
    with pytest.raises(WireError, match="unknown"):
        authority.enrol(make_request(new_key(), V1), waiting.secret)
    assert authority.revoke("v1") == gone
    with pytest.raises(NotFoundError):
        authority.revoke("v2")


def test_id_that_enrolled_again_is_not_denied(authority):
    enrolled(authority)
    authority.revoke("v1", "stolen")
    enrolled(authority)
    assert authority.fallen() == []


@pytest.mark.parametrize(
    "request_pem",
    [b"", b"x" * 100_000, b"-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n"],
)
def test_request_that_is_none_is_refused(authority, request_pem):
    with pytest.raises(WireError, match="bad-request"):
        authority.enrol(request_pem, "x")
    with pytest.raises(WireError, match="bad-request"):
        read_request(request_pem)


def test_request_with_anothers_key_is_refused():
    request = x509.load_pem_x509_csr(make_request(new_key(), V1)).public_bytes(Encoding.DER)
    forged = bytearray(request)
    forged[-1] ^= 1
    body = base64.encodebytes(bytes(forged)).decode()
    pem = f"-----BEGIN CERTIFICATE REQUEST-----\n{body}-----END CERTIFICATE REQUEST-----\n".encode()
    with pytest.raises(WireError, match="not signed by its own key"):
        read_request(pem)


def test_key_is_private_and_encrypted_with_a_password(tmp_path, monkeypatch):
    monkeypatch.setenv("GLASSFLEET_CA_PASSWORD", "long enough")
    made = Authority.create(tmp_path / "ca", "x")
    path = made.folder / "ca-key.pem"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert b"ENCRYPTED" in path.read_bytes()
    assert Authority(made.folder).ca_pem == made.ca_pem
    monkeypatch.setenv("GLASSFLEET_CA_PASSWORD", "another")
    with pytest.raises(UsageError, match="GLASSFLEET_CA_PASSWORD"):
        Authority(made.folder)
    monkeypatch.delenv("GLASSFLEET_CA_PASSWORD")
    with pytest.raises(UsageError, match="GLASSFLEET_CA_PASSWORD"):
        Authority(made.folder)


@pytest.mark.parametrize("damage", ["gone", "nonsense", "[]"])
def test_lost_register_is_told_and_nothing_is_issued_without_it(authority, damage):
    enrolled(authority)
    path = authority.folder / "register.json"
    path.unlink()
    if damage != "gone":
        path.write_text(damage)
    with pytest.raises(StorageError, match="restore it from a backup"):
        authority.token("v2")


def test_authority_that_ends_gives_no_certificate_that_outlives_it(authority, clock):
    clock.skip(days=3600)
    _, made = enrolled(authority)
    certificate = x509.load_pem_x509_certificate(made)
    assert certificate.not_valid_after_utc == authority.certificate.not_valid_after_utc
    clock.skip(days=100)
    with pytest.raises(GlassfleetError, match="CA itself expired"):
        enrolled(authority, "v2")
