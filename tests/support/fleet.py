"""A fleet's authority and identities for tests, made with the product's own code."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

from broker.identity import load_identity, save_identity
from coordinator.authority.store import Authority
from schemas.trust.identity import load_key, new_key
from schemas.trust.owner import Owner, Role
from schemas.trust.revocation import lists_in, number_of

HOSTS = ("localhost", "127.0.0.1")


class FleetCa:
    """An authority in a folder; each identity in a folder beside it."""

    def __init__(self, folder: Path, name: str = "test CA") -> None:
        self.folder = folder
        self.authority = Authority.create(folder / "ca", name)

    def identity(
        self, role: Role, name: str, *, days: float = 30, hosts: tuple[str, ...] = (), where: str = "", ago: float = 0
    ) -> Path:
        """Issue an identity; `ago` days ago, so that it may have expired."""
        if not hosts and role == "broker":
            hosts = HOSTS
        key = new_key()
        authority = self.authority
        if ago:
            then = dt.datetime.now(dt.UTC) - dt.timedelta(days=ago)
            authority = Authority(self.authority.folder, clock=lambda: then)
            # The CA was made today; for its certificate to be older than the CA, the cut to the CA's dates is lifted.
            authority._ca = _Older(authority._ca, then)  # type: ignore[assignment]
        made = authority.issue(Owner(role, name), load_key(key).public_key(), days=days, hosts=hosts)
        folder = self.folder / (where or name)
        save_identity(folder, key=key, ca=authority.ca_pem, crl=authority.crl_pem, certificate=made)
        return folder


class _Older:
    """A CA certificate that claims to have begun earlier."""

    def __init__(self, real, begins) -> None:
        self._real = real
        self.not_valid_before_utc = begins - dt.timedelta(days=1)

    def __getattr__(self, name: str):
        return getattr(self._real, name)


def serial_of(folder: Path) -> int:
    from cryptography import x509

    return x509.load_pem_x509_certificate(load_identity(folder).certificate).serial_number


def number_in(crl_pem: bytes) -> int:
    """The number of the first revocation list in a bundle."""
    return number_of(lists_in(crl_pem)[0])
