"""Renewals: what they replace, how many there may be, what the list holds; nobody who died in between is locked out."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from cryptography import x509
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coordinator.authority.store import Authority
from schemas.errors import WireError
from schemas.trust.identity import load_key, make_request, new_key, prove_renewal
from schemas.trust.owner import Owner
from tests.support.authorities import Calendar

LASTS = 100


class Renewing:
    """An authority, and one process that renews at it."""

    def __init__(self, folder: Path, role: str = "agent") -> None:
        self.clock = Calendar()
        self.authority = Authority.create(folder / "ca", "test CA", days=100_000, clock=self.clock)
        self.owner = Owner(role, "v1")  # type: ignore[arg-type]
        self.key = new_key()
        self.certificate = self.authority.issue(self.owner, load_key(self.key).public_key(), days=LASTS)

    def renew(self, certificate: bytes | None = None, *, key: bytes | None = None, most: int | None = 8) -> bytes:
        request = make_request(key or self.key, self.owner)
        proof = prove_renewal(self.key, request)
        return self.authority.renew(request, certificate or self.certificate, proof, LASTS, most=most)

    def good(self) -> set[str]:
        return {one.serial for one in self.authority.issued() if one.is_good(self.clock.now)}

    def listed(self) -> int:
        return len(list(x509.load_pem_x509_crl(self.authority.crl_pem)))


def serial(certificate: bytes) -> str:
    return f"{x509.load_pem_x509_certificate(certificate).serial_number:x}"


def test_vehicle_that_renews_without_end_is_refused_by_name_and_the_list_stays_short(tmp_path: Path) -> None:
    vehicle = Renewing(tmp_path)
    for _ in range(7):
        former, vehicle.certificate = vehicle.certificate, vehicle.renew()
        assert vehicle.good() == {serial(former), serial(vehicle.certificate)}
    assert vehicle.listed() == 6
    for _ in range(20):
        with pytest.raises(WireError, match=r"agent v1 has 8 .*renew it from 2026-04-11 00:00 UTC on") as caught:
            vehicle.renew()
    assert caught.value.code == "too-many"
    assert (len(vehicle.authority.issued()), vehicle.listed()) == (8, 6)
    vehicle.clock.skip(days=LASTS - 0.5)
    with pytest.raises(WireError, match="too-many"):
        vehicle.renew()
    vehicle.clock.skip(days=0.5)
    with pytest.raises(WireError, match="expired"):  # all were made at one time
        vehicle.renew()


def test_certificate_that_is_renewed_again_gets_the_one_that_it_got(tmp_path: Path) -> None:
    vehicle = Renewing(tmp_path)
    made = vehicle.renew()
    assert [vehicle.renew() for _ in range(50)] == [made] * 50
    # With another key it is another one: the first was never used.
    other = vehicle.renew(key=new_key())
    assert vehicle.good() == {serial(vehicle.certificate), serial(other)}


def test_former_certificate_is_revoked_once_the_new_one_was_used(tmp_path: Path) -> None:
    vehicle = Renewing(tmp_path)
    first, second = vehicle.certificate, vehicle.renew()
    assert vehicle.listed() == 0
    third = vehicle.renew(second)
    assert vehicle.good() == {serial(second), serial(third)}
    with pytest.raises(WireError, match=r"revoked \(replaced\)"):
        vehicle.renew(first)


def test_eight_that_a_thief_burnt_do_not_keep_a_vehicle_that_enrolled_again_from_renewing(tmp_path: Path) -> None:
    vehicle = Renewing(tmp_path)
    for _ in range(7):
        vehicle.certificate = vehicle.renew()
    vehicle.authority.revoke("v1", "stolen")
    vehicle.key = new_key()
    token = vehicle.authority.token("v1")
    vehicle.certificate = vehicle.authority.enrol(make_request(vehicle.key, vehicle.owner), token.secret, LASTS)
    for _ in range(7):
        vehicle.certificate = vehicle.renew(key=vehicle.key)
    with pytest.raises(WireError, match="too-many"):
        vehicle.renew()


@pytest.mark.parametrize("role", ["coordinator", "operator"])
def test_renewal_of_others_revokes_nothing(tmp_path: Path, role: str) -> None:
    other = Renewing(tmp_path, role)
    for _ in range(20):
        other.certificate = other.renew(most=None)
    assert (len(other.good()), other.listed()) == (21, 0)


@pytest.mark.parametrize(("role", "listed"), [("agent", 0), ("coordinator", 1)])
def test_list_forgets_what_expired_but_not_who_could_date_a_model_back(tmp_path: Path, role: str, listed: int) -> None:
    gone = Renewing(tmp_path, role)
    gone.authority.revoke("v1")
    gone.clock.skip(days=LASTS)
    gone.authority.refresh_crl()
    assert gone.listed() == 1, "clocks differ"
    gone.clock.skip(days=1)
    gone.authority.refresh_crl()
    assert gone.listed() == listed


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 70)), max_size=25))
def test_vehicle_is_never_locked_out_whenever_it_dies_between_receipt_and_storage(
    steps: list[tuple[bool, int]],
) -> None:
    with TemporaryDirectory() as folder:
        vehicle = Renewing(Path(folder))
        for is_stored, days in steps:
            try:
                made = vehicle.renew()
            except WireError:  # too many: it has a good one
                made = vehicle.certificate
            assert {serial(vehicle.certificate), serial(made)} <= vehicle.good()
            assert len(vehicle.good()) <= 2
            if is_stored:
                vehicle.certificate = made
            ends = x509.load_pem_x509_certificate(vehicle.certificate).not_valid_after_utc
            if vehicle.clock.now + dt.timedelta(days=days) < ends:
                vehicle.clock.skip(days=days)
        vehicle.authority.refresh_crl()
        assert vehicle.listed() <= 7
