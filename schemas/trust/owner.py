"""Whom a certificate names. Apart from `schemas.trust.certificates`, which needs the cryptography."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Role = Literal["agent", "coordinator", "operator", "broker"]
ROLES: tuple[Role, ...] = ("agent", "coordinator", "operator", "broker")

URN = "urn:glassfleet:"
"""Start of the URI that names a certificate's owner: ``urn:glassfleet:{role}:{id}``."""


@dataclass(frozen=True)
class Owner:
    """Whom a certificate names."""

    role: Role
    id: str

    def __str__(self) -> str:
        return f"{self.role} {self.id}"
