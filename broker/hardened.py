"""A running Mosquitto with mutual TLS takes over a new revocation list, and denies ids, without a restart.

Mosquitto reads ``crlfile`` and ``acl_file`` again at SIGHUP. The list is checked at the next handshake only, so a
connection that stands goes on; the access rules count at once for every message. Both are changed, therefore.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from broker.passwords import write_private
from broker.tls import CA, CRL, replace_private
from schemas.errors import StorageError, UsageError, WireError
from schemas.revocation import merged, newest_of_each, number_of
from schemas.signing import Verifier, lists_in
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


def check_crl(crl_pem: bytes, ca_pem: bytes, former: bytes | None) -> tuple[bytes, int]:
    """Check revocation lists before a broker or a process takes them.

    Returns
    -------
    bytes
        The newest list of each CA, of these and the former ones, PEM: what to keep.
    int
        How many certificates they revoke.

    Raises
    ------
    UsageError
        There is no list, another authority made it, or it is older than the former one.
    """
    if not lists_in(crl_pem):
        raise UsageError("the revocation list cannot be read as PEM; `glassfleet ca crl` makes one")
    verifier = Verifier(ca_pem, time.time)
    try:
        verifier.take_crl(crl_pem)
    except WireError as fault:
        raise UsageError(
            "the revocation list is from another authority than ours: a broker would refuse all"
        ) from fault
    pairs = zip(newest_of_each(ca_pem, crl_pem), newest_of_each(ca_pem, former or b""), strict=True)
    if all(ours is None or (there is not None and number_of(ours) < number_of(there)) for ours, there in pairs):
        raise UsageError("the revocation list is older than the one that is there: it would let revoked ones in again")
    kept = merged(ca_pem, former or b"", crl_pem)
    return kept, verifier.take_crl(kept)


def take_list(folder: Path, crl_pem: bytes, *, deny: Sequence[str] = (), allow: Sequence[str] = ()) -> str:
    """Hand a revocation list to whoever lives in `folder`: a process's identity, or a Mosquitto's files.

    Returns
    -------
    str
        What was done, in words.

    Raises
    ------
    UsageError
        It is neither, or as `check_crl`.
    StorageError
        A file cannot be read or written.
    """
    if not (folder / CA).is_file():
        return reload(folder, crl_pem, deny=deny, allow=allow)
    try:
        former = (folder / CRL).read_bytes() if (folder / CRL).exists() else None
        kept, count = check_crl(crl_pem, (folder / CA).read_bytes(), former)
        # Readable by whoever runs the process, though root put it there; there is no secret in it.
        replace_private(folder / CRL, kept, 0o644)
    except OSError as fault:
        raise StorageError(f"cannot hand the list to {folder}: {fault.strerror}") from fault
    return f"the list revokes {count}; a running process takes it over within seconds"


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
            former = target.read_bytes() if target.exists() else None
            kept, count = check_crl(crl_pem, files["cafile"].read_bytes(), former)
            # As readable as it was: the broker runs as another user, and there is no secret in it.
            replace_private(target, kept, 0o644)
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
