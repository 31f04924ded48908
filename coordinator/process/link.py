"""How the processes of a coordinator reach the broker, and what they sign and verify with."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from broker.paho_transport import PahoTransport
from broker.port import Link, Transport
from broker.signed import RefusalLog, signed
from broker.tls import tls_of, worker_identity
from coordinator.config import CoordinatorConfig
from schemas.errors import UsageError
from schemas.topics import Topics

if TYPE_CHECKING:  # a fleet that does not sign need not load the cryptography
    from broker.credentials import FolderCredentials

_log = structlog.get_logger("coordinator")


def link_of(config: CoordinatorConfig, more: str = "") -> Link:
    """Return how to reach the broker; `more` ends the client id of a connection beside the coordinator's own."""
    return config.connection.link(
        config.broker,
        f"gf-coordinator-{config.fleet}{more}",
        tls=tls_of(config.identity, config.ca_file),
        insecure_plaintext=config.insecure_plaintext,
    )


def credentials_of(identity: Path | None) -> FolderCredentials | None:
    """Return what a coordinator signs and verifies with; None where it has no identity. Raises UsageError."""
    if identity is None:
        return None
    from broker.credentials import FolderCredentials  # noqa: PLC0415  loaded by fleets that sign
    from broker.identity import check_owner  # noqa: PLC0415

    check_owner(identity, "coordinator")
    return FolderCredentials(identity)


def check_workers(identity: Path, workers: int) -> None:
    """Raise UsageError unless each intake worker has an identity of its own, with an id of its own."""
    from broker.identity import check_owner, load_identity  # noqa: PLC0415  loaded by fleets that sign

    name = load_identity(identity).owner.id
    taken = {name}
    for number in range(1, workers + 1):
        own = worker_identity(identity, number)
        its = check_owner(own, "coordinator").owner.id if own.is_dir() else name
        if its in taken:
            raise UsageError(
                f"{own} must be the identity of intake worker {number}, with an id of its own: one identity cannot "
                f"connect twice. Make it: glassfleet ca issue --coordinator {name}-{number} --out {own}"
            )
        taken.add(its)


def connects(
    config: CoordinatorConfig, credentials: FolderCredentials | None, count: Callable[[str], None]
) -> Callable[[Link], Transport]:
    """Return what makes transports, signed if there are credentials; `count` takes the names of what is refused."""
    refused = RefusalLog(count, _log_refused)
    return partial(_transport, Topics(config.fleet), credentials, refused)


def _transport(topics: Topics, credentials: FolderCredentials | None, refused: RefusalLog, link: Link) -> Transport:
    return signed(link, topics, credentials, refused, PahoTransport)


def _log_refused(topic: str, code: str, reason: str, since: int) -> None:
    _log.warning("message-refused", topic=topic, code=code, reason=reason, since_last=since)
