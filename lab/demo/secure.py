"""The demonstration over mutual TLS: an authority, a certificate for each process, Mosquitto with a vehicle's rules.

Everything is made in the demonstration's folder and forgotten with it; the keys, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from broker.identity import save_identity
from broker.servers.mosquitto import MosquittoProcess, certificate_acl
from broker.tls import worker_identity
from coordinator.authority.store import Authority
from schemas.topics import Topics
from schemas.trust.identity import load_key, new_key
from schemas.trust.owner import Owner

HOSTS = ("localhost", "127.0.0.1", "::1")
DAYS = 2.0


def secure_broker(
    work: Path,
    fleet: str,
    coordinator: str,
    vehicles: Sequence[str],
    operators: Sequence[str] = (),
    *,
    workers: int = 1,
) -> tuple[MosquittoProcess, Path]:
    """Make an authority and all certificates, and start Mosquitto with them; return it, and the identities' folder.

    Parameters
    ----------
    work : Path
        Folder of the demonstration.
    fleet : str
    coordinator : str
        Id of the coordinator; no vehicle's.
    vehicles : sequence of str
    operators : sequence of str
        Who else gets an identity: may read all, and write nothing.
    workers : int
        The coordinator's intake workers, if there are more than one: each gets an identity in its folder.

    Raises
    ------
    BrokerError
        Mosquitto is not installed (the embedded broker has no TLS), or did not start.
    UsageError
        A vehicle has the coordinator's or the broker's id.
    """
    authority = Authority.create(work / "ca", f"{fleet} demonstration CA", days=int(DAYS) + 1)
    identities = work / "identities"
    owners = [(Owner("broker", "broker"), HOSTS), (Owner("coordinator", coordinator), ())]
    owners += [(Owner("operator", operator), ()) for operator in operators]
    numbers = range(1, workers + 1) if workers > 1 else ()
    folders = {f"{coordinator}-{number}": worker_identity(identities / coordinator, number) for number in numbers}
    owners += [(Owner("coordinator", name), ()) for name in folders]
    for owner, hosts in [*owners, *((Owner("agent", vehicle), ()) for vehicle in vehicles)]:
        key = new_key()
        certificate = authority.issue(owner, load_key(key).public_key(), days=DAYS, hosts=hosts)
        parts = {"ca": authority.ca_pem, "crl": authority.crl_pem, "certificate": certificate}
        save_identity(folders.get(owner.id, identities / owner.id), key=key, **parts)
    acl = certificate_acl(Topics(fleet), coordinators=[coordinator, *folders], operators=operators)
    broker = MosquittoProcess(work / "broker", identity=identities / "broker", acl=acl)
    broker.start()
    return broker, identities
