"""A running Mosquitto with mutual TLS takes over a new revocation list, and denies ids, without a restart.

Mosquitto reads ``crlfile`` and ``acl_file`` again at SIGHUP. The list is checked at the next handshake only, so a
connection that stands goes on; the access rules count at once for every message. Both are changed, therefore.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509

from broker.passwords import write_private
from broker.tls import replace_private
from schemas.errors import StorageError, UsageError
from schemas.topics import check_id

_DENIED = re.compile(r"^user ([^\n]+)\ntopic deny #\n\n?", re.MULTILINE)
_PATH = re.compile(r"^(cafile|crlfile|acl_file|pid_file) (.+)$", re.MULTILINE)


def deny_in(acl: str, deny: Sequence[str], allow: Sequence[str] = ()) -> str:
    """Return access rules that take every right from the ids in `deny`, and no longer from those in `allow`.

    Raises
    ------
    UsageError
        An id is not valid.
    """
    names = dict.fromkeys(_DENIED.findall(acl))
    names |= {check_id("agent", name): None for name in deny}
    for name in allow:
        names.pop(name, None)
    rest = _DENIED.sub("", acl)
    blocks = "".join(f"user {name}\ntopic deny #\n\n" for name in names)
    head, gap, tail = rest.partition("\n\n")
    return f"{head}{gap}{blocks}{tail}"


def check_crl(crl_pem: bytes, ca_pem: bytes, former: bytes | None) -> int:
    """Check a revocation list before a broker takes it; returns how many certificates it revokes.

    Raises
    ------
    UsageError
        It is no list, another authority made it, or it is older than the former one.
    """
    try:
        crl, ca = x509.load_pem_x509_crl(crl_pem), x509.load_pem_x509_certificate(ca_pem)
    except ValueError as fault:
        raise UsageError("the revocation list cannot be read as PEM; `glassfleet ca crl` makes one") from fault
    if crl.issuer != ca.subject or not crl.is_signature_valid(ca.public_key()):  # type: ignore[arg-type]  # any key
        raise UsageError("the revocation list is from another authority than the broker's: a broker would refuse all")
    if former is not None and crl_number(crl) < crl_number(x509.load_pem_x509_crl(former)):
        raise UsageError("the revocation list is older than the broker's: it would let revoked ones in again")
    return len(list(crl))


def crl_number(crl: x509.CertificateRevocationList) -> int:
    """Return a list's number (RFC 5280, 5.2.3); 0 when it has none."""
    try:
        return crl.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number
    except x509.ExtensionNotFound:
        return 0


def reload(folder: Path, crl_pem: bytes | None, *, deny: Sequence[str] = (), allow: Sequence[str] = ()) -> str:
    """Change list and rules of the broker whose files are in `folder`, and tell it; returns what was done, in words.

    Raises
    ------
    UsageError
        There is no such broker's configuration in the folder, or as `check_crl` and `deny_in`.
    StorageError
        A file cannot be read or written.
    """
    try:
        files = _files(folder)
        said = []
        if crl_pem is not None:
            target = files["crlfile"]
            count = check_crl(crl_pem, files["cafile"].read_bytes(), target.read_bytes() if target.exists() else None)
            # As readable as it was: the broker runs as another user, and there is no secret in it.
            replace_private(target, crl_pem, 0o644)
            said.append(f"the list revokes {count}")
        if deny or allow:
            acl = files["acl_file"]
            text = deny_in(acl.read_text(encoding="utf-8"), deny, allow)
            owner = acl.stat()
            write_private(acl, text)
            if os.geteuid() == 0:
                os.chown(acl, owner.st_uid, owner.st_gid)
            said.append(f"denied: {', '.join(_DENIED.findall(text)) or 'nobody'}")
        pid = files["pid_file"]
        if not pid.exists():
            return "; ".join([*said, "the broker does not run: it reads them when it starts"])
        _hang_up(int(pid.read_text(encoding="ascii")))
    except ProcessLookupError:
        return "; ".join([*said, "the broker does not run any more: it reads them when it starts"])
    except (OSError, ValueError) as fault:
        raise StorageError(f"cannot reload the broker in {folder}: {fault}") from fault
    return "; ".join([*said, "the broker was told (SIGHUP)"])


def _hang_up(pid: int) -> None:
    """Send SIGHUP, to a Mosquitto only: the note of one that was killed may name anybody by now."""
    name = Path(f"/proc/{pid}/comm")
    if name.parent.parent.joinpath("self").exists() and (
        not name.exists() or name.read_text(encoding="utf-8").strip() != "mosquitto"
    ):
        raise ProcessLookupError
    os.kill(pid, signal.SIGHUP)


def _files(folder: Path) -> dict[str, Path]:
    for path in sorted(folder.iterdir()):
        if path.suffix != ".conf" or not path.is_file():
            continue
        found = {name: Path(value.strip()) for name, value in _PATH.findall(path.read_text(encoding="utf-8"))}
        if found.keys() >= {"cafile", "crlfile", "acl_file", "pid_file"}:
            return found
    raise UsageError(f"{folder} has no .conf with mutual TLS: `glassfleet broker config mosquitto --tls` writes one")
