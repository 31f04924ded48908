"""A running Mosquitto with mutual TLS takes over a new revocation list, and denies ids, without a restart.

Mosquitto reads ``crlfile`` and ``acl_file`` again at SIGHUP. The list is checked at the next handshake only, so a
connection that stands goes on; the access rules count at once for every message. Both are changed, therefore.
"""

from __future__ import annotations

import os
import pwd
import re
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from broker.identity import alone_in
from broker.servers.process import write_private
from broker.tls import CA, CRL
from schemas.errors import StorageError, UsageError, WireError, os_faults_as
from schemas.private_files import replace_private
from schemas.topics import check_id
from schemas.trust.certificates import is_behind, newest, read_list
from schemas.trust.signing import Verifier

_DENIED = re.compile(r"^user ([^\n]+)\ntopic deny #\n\n?", re.MULTILINE)
_PATH = re.compile(r"^(cafile|crlfile|acl_file|pid_file|certfile|keyfile) (.+)$", re.MULTILINE)
_READ_AGAIN = ("keyfile", "certfile", "cafile", "crlfile", "acl_file")


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
    """Check a revocation list before a broker or a process takes it.

    Returns
    -------
    bytes
        The newer of it and the former one, PEM: what to keep.
    int
        How many certificates that revokes.

    Raises
    ------
    UsageError
        There is no list, another authority made it, or it is older than the former one.
    """
    if read_list(crl_pem) is None:
        raise UsageError("the revocation list cannot be read as PEM; `glassfleet ca crl` makes one")
    verifier = Verifier(ca_pem, time.time)
    try:
        verifier.update_crl(crl_pem)
    except WireError as fault:
        raise UsageError(
            "the revocation list is from another authority than ours: a broker would refuse all"
        ) from fault
    if is_behind(crl_pem, newest(ca_pem, former or b"")):
        raise UsageError("the revocation list is older than the one that is there: it would let revoked ones in again")
    kept = newest(ca_pem, former or b"", crl_pem)
    return kept, verifier.update_crl(kept)


def install_crl(folder: Path, crl_pem: bytes, *, deny: Sequence[str] = (), allow: Sequence[str] = ()) -> str:
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
    with os_faults_as(StorageError, f"cannot hand the list to {folder}"), alone_in(folder):
        count = _replace_crl(folder / CRL, crl_pem, folder / CA)
    return f"the list revokes {count}; a running process takes it over within seconds"


def _replace_crl(target: Path, crl_pem: bytes, ca: Path) -> int:
    """Put a list in place of the former one, unless that is newer; returns how many certificates it revokes."""
    former = target.read_bytes() if target.exists() else None
    kept, count = check_crl(crl_pem, ca.read_bytes(), former)
    # Readable by whoever runs the process or broker, though root put it there; there is no secret in it.
    replace_private(target, kept, 0o644)
    return count


def reload(folder: Path, crl_pem: bytes | None, *, deny: Sequence[str] = (), allow: Sequence[str] = ()) -> str:
    """Change list and rules of the broker whose files are in `folder`, and tell it; returns what was done, in words.

    Raises
    ------
    UsageError
        There is no such broker's configuration in the folder, or as `check_crl` and `deny_in`.
    StorageError
        A file cannot be read or written, or the broker's user cannot read one: it is not told then, as it would refuse
        everybody.
    """
    try:
        files = _files(folder)
        results = []
        if crl_pem is not None:
            results.append(f"the list revokes {_replace_crl(files['crlfile'], crl_pem, files['cafile'])}")
        if deny or allow:
            acl = files["acl_file"]
            text = deny_in(acl.read_text(encoding="utf-8"), deny, allow)
            owner = acl.stat()
            write_private(acl, text)
            if os.geteuid() == 0:
                os.chown(acl, owner.st_uid, owner.st_gid)
            results.append(f"denied: {', '.join(_DENIED.findall(text)) or 'nobody'}")
        pid = files["pid_file"]
        if not pid.exists():
            return "; ".join([*results, "the broker does not run: it reads them when it starts"])
        number = int(pid.read_text(encoding="ascii"))
        _check_is_mosquitto(number)
        _check_can_read(number, [files[name] for name in _READ_AGAIN if name in files], folder)
        os.kill(number, signal.SIGHUP)
    except ProcessLookupError:
        return "; ".join([*results, "the broker does not run any more: it reads them when it starts"])
    except (OSError, ValueError) as fault:
        raise StorageError(f"cannot reload the broker in {folder}: {fault}") from fault
    return "; ".join([*results, "the broker was told (SIGHUP)"])


def _check_is_mosquitto(pid: int) -> None:
    """Raise ProcessLookupError when it is not: the note of one that was killed may name anybody by now."""
    name = Path(f"/proc/{pid}/comm")
    if name.parent.parent.joinpath("self").exists() and (
        not name.exists() or name.read_text(encoding="utf-8").strip() != "mosquitto"
    ):
        raise ProcessLookupError


def _check_can_read(pid: int, paths: Sequence[Path], folder: Path) -> None:
    """Raise StorageError when the user that the broker has become cannot read what it reads again at SIGHUP."""
    user = _user_of(pid)
    if user is None or os.geteuid() not in (0, user[0]):
        return
    hidden = [path for path in paths if not _can_read(path, *user)]
    if not hidden:
        return
    try:
        name = pwd.getpwuid(user[0]).pw_name
    except KeyError:
        name = str(user[0])
    raise StorageError(
        f"the broker was not told: it runs as user {name}, who cannot read {', '.join(map(str, hidden))}, and it would "
        f"refuse everybody. Give them to it (chown {name} FILE; it must also be let into the folders above), then: "
        f"glassfleet broker reload {folder}"
    )


def _user_of(pid: int) -> tuple[int, int, list[int]] | None:
    """Return user, group and further groups of a process; None: this system does not tell (it has no /proc)."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    # Real, effective, saved and for files: the last is what counts when it opens one.
    return int(fields["Uid"].split()[3]), int(fields["Gid"].split()[3]), [int(one) for one in fields["Groups"].split()]


def _can_read(path: Path, user: int, group: int, groups: list[int]) -> bool:
    """Whether a user can read a file: asked in that user's place, as folders above it and access lists count, too."""
    if os.geteuid() == user:
        return os.access(path, os.R_OK, effective_ids=True)
    ask = ["/usr/bin/env", "test", "-r", str(path)]
    try:
        asked = subprocess.run(ask, user=user, group=group, extra_groups=groups, cwd="/", check=False)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        # A root that may not become another user (in a container) cannot know; the broker is told as ever.
        return True
    return asked.returncode != 1  # 127 and the like: nobody could be asked


def _files(folder: Path) -> dict[str, Path]:
    for path in sorted(folder.iterdir()):
        if path.suffix != ".conf" or not path.is_file():
            continue
        paths = {name: Path(value.strip()) for name, value in _PATH.findall(path.read_text(encoding="utf-8"))}
        if paths.keys() >= {"cafile", "crlfile", "acl_file", "pid_file"}:
            return paths
    raise UsageError(f"{folder} has no .conf with mutual TLS: `glassfleet broker config --tls` writes one")
