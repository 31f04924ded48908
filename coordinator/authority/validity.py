"""Which certificates are good: what a renewal replaces, how many there may be, what the revocation list holds. Pure."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

from cryptography import x509

from coordinator.authority.certificates import Revoked
from coordinator.authority.register import Issued, Register
from schemas.errors import WireError
from schemas.trust.owner import Owner

RENEWALS = 8
"""Certificates of one enrolment that have not expired, at most: then it may renew when the oldest ends."""

LISTED_AFTER = dt.timedelta(days=1)
"""A revoked certificate stays on the list so long after its end: clocks differ."""

REASONS = {
    "unspecified": x509.ReasonFlags.unspecified,
    "stolen": x509.ReasonFlags.key_compromise,
    "replaced": x509.ReasonFlags.superseded,
    "retired": x509.ReasonFlags.cessation_of_operation,
}
"""Why a certificate is revoked, and RFC 5280's word for it."""


def renewed_before(register: Register, present: Issued, key: str, now: dt.datetime) -> Issued | None:
    """Return the good certificate, for this key (its SHA-256), that renewed the present one already; None: none did."""
    return next(
        (one for one in register.issued if one.after == present.serial and one.key == key and one.is_good(now)), None
    )


def check_most(register: Register, present: Issued, most: int, now: dt.datetime) -> None:
    """Raise WireError (``too-many``) when an owner has so many certificates of this authority that have not expired.

    Counted are those that were renewed, one after the other, from the one that the present one comes from: whoever is
    given another (after a theft, by a new token) begins anew. Those that were replaced count, as each is on the list.
    """
    owner = Owner(present.role, present.id)
    first: dict[str, str] = {}
    for one in register.issued:  # in the order of issue
        first[one.serial] = first.get(one.after, one.serial)
    same = (one for one in register.issued if first[one.serial] == first[present.serial] and not one.former)
    running = sorted(end for one in same if now < (end := dt.datetime.fromisoformat(one.ends)))
    if len(running) >= most:
        raise WireError(
            "too-many",
            f"{owner} has {len(running)} certificates that have not expired, and may have {most}: use the present one, "
            f"and renew it from {running[-most]:%Y-%m-%d %H:%M} UTC on",
        )


def after_renewal(register: Register, present: Issued, added: Issued, now: dt.datetime) -> Register:
    """Return the register with a new certificate; of an agent, all are revoked but that and the one it renews.

    Nobody else's are: what a coordinator signed would not be believed any more.
    """

    def after(one: Issued) -> Issued:
        if one.role != "agent" or one.id != present.id or one == present or not one.is_good(now):
            return one
        return replace(one, revoked=now.isoformat(), reason="replaced")

    issued = [after(one) for one in register.issued]
    return replace(register, issued=[*issued, replace(added, after=present.serial)])


def listed(register: Register, now: dt.datetime) -> list[Revoked]:
    """Return what the revocation list holds: what was revoked and has not expired.

    A coordinator's for ever, as who has its key can date a model back.
    """
    return [
        Revoked(int(one.serial, 16), dt.datetime.fromisoformat(one.revoked), REASONS[one.reason])
        for one in register.issued
        if one.revoked is not None
        and (one.role == "coordinator" or now < dt.datetime.fromisoformat(one.ends) + LISTED_AFTER)
    ]
