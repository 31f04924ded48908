"""The local log of forecasts: chained records in segments, bounded on disk, written so that a crash costs no record.

::

    forecasts/
      00000001.jsonl ...   segments, one record a line; the oldest give way when the log is full
      head.json            which records are kept and the newest one's hash, under the vehicle's secret
      secret               made once, readable by its owner alone; each record and the head carry an HMAC under it
      models/{digest}.json the records of the models that forecasts were made with

A record is on disk before its forecast leaves the vehicle. The head is replaced after it, so after a crash the log may
be ahead of its head, never behind; a last line that was torn is dropped, since nobody has seen its forecast.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import hmac
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from edge_agent.storage import FolderLock, explained, load_secret, make_directory, replacing
from schemas.codec import canonical_json
from schemas.errors import DocumentError, VerificationError
from schemas.messages import LogHead
from schemas.private_files import open_private, sync_folder

ORIGIN = "0" * 64
"""What the first record says of the one before it."""


@dataclass(frozen=True)
class Head:
    """Where a log begins and ends.

    Attributes
    ----------
    first : int
        Number of the oldest record that is kept; older ones gave way.
    before : str
        Hash of the record before it.
    n : int
        Number of the newest record; ``first - 1`` when there is none.
    hash : str
        Its hash.
    """

    first: int = 1
    before: str = ORIGIN
    n: int = 0
    hash: str = ORIGIN

    def to_bytes(self, secret: bytes) -> bytes:
        """Encode, with an HMAC-SHA256 under `secret`."""
        return canonical_json({**asdict(self), "mac": self._mac(secret)}) + b"\n"

    def _mac(self, secret: bytes) -> str:
        content = b"glassfleet forecast log 1\0" + canonical_json(asdict(self))
        return hmac.new(secret, content, hashlib.sha256).hexdigest()

    def log_head(self) -> LogHead | None:
        """Return what a witness is told; None: there is no record yet."""
        return LogHead(n=self.n, hash=self.hash) if self.n else None

    @classmethod
    def from_bytes(cls, data: bytes, secret: bytes | None) -> Head:
        """Decode; with `secret` None the HMAC is not looked at.

        Raises
        ------
        VerificationError
            It is damaged, or was not written by the holder of `secret`.
        """
        try:
            value = json.loads(data)
            mac = value.pop("mac")
            head = cls(**value)
            well = all(isinstance(number, int) for number in (head.first, head.n)) and all(
                isinstance(text, str) for text in (head.before, head.hash, mac)
            )
            is_ours = well and (secret is None or hmac.compare_digest(mac.encode(), head._mac(secret).encode()))
        except (ValueError, TypeError, KeyError, AttributeError, DocumentError, RecursionError) as fault:
            raise VerificationError("the log's head is damaged") from fault
        if not is_ours:
            raise VerificationError("the log's head was not written by this vehicle")
        return head


def _record_mac(digest: str, secret: bytes) -> str:
    return hmac.new(secret, b"glassfleet forecast record 1\0" + digest.encode(), hashlib.sha256).hexdigest()


def seal(record: Mapping[str, Any], n: int, previous: str, secret: bytes) -> tuple[bytes, str]:
    """Return a record's line and its hash.

    Raises
    ------
    DocumentError
        It holds what JSON cannot.
    """
    body = {**record, "n": n, "previous": previous}
    digest = hashlib.sha256(canonical_json(body)).hexdigest()
    return canonical_json({**body, "hash": digest, "mac": _record_mac(digest, secret)}) + b"\n", digest


def unseal(line: bytes, where: str, secret: bytes | None) -> dict[str, Any]:
    """Return a line's record, its own hash verified, and its HMAC; with `secret` None that is not looked at.

    Raises
    ------
    VerificationError
        The line was changed, or was not written by the holder of `secret`; `where` is told.
    """
    try:
        record = json.loads(line)
        body = {name: value for name, value in record.items() if name not in ("hash", "mac")}
        whole = (
            isinstance(body["n"], int)
            and isinstance(body["previous"], str)
            and isinstance(record["mac"], str)
            and hashlib.sha256(canonical_json(body)).hexdigest() == record["hash"]
            and canonical_json(record) + b"\n" == line
        )
    except (ValueError, KeyError, AttributeError, TypeError, DocumentError, RecursionError) as fault:
        raise VerificationError(f"{where} is no record of a forecast log") from fault
    if not whole:
        raise VerificationError(f"{where} was changed after it was written")
    if secret is not None and not hmac.compare_digest(
        record["mac"].encode(), _record_mac(record["hash"], secret).encode()
    ):
        raise VerificationError(f"{where} was not written by this vehicle: its HMAC is not of the vehicle's secret")
    return dict(record)


DEFAULT_MAX_BYTES = 256 << 20
"""A record has about 1500 bytes with thirty inputs: two days of a forecast each second."""

SEGMENTS = 16
"""A full log is made of about so many segments: a sixteenth of it gives way at a time."""

_SEGMENT = re.compile(r"^\d{8}\.jsonl$")
_DIGEST = re.compile(rb'"digest":"([0-9a-f]{64})"')


class ForecastLog:
    """Writes the log; one process at a time.

    Parameters
    ----------
    directory : Path
    max_bytes : int
        Of all segments together; the models come on top.

    Attributes
    ----------
    head : Head
    notes : tuple of str
        What was found wrong when the log was opened; the caller says it, and `verify` finds it.

    Raises
    ------
    StorageError
        It cannot be used.
    IdentityError
        Another process writes it.
    """

    def __init__(self, directory: Path, *, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        self._directory = make_directory(directory)
        self._lock = FolderLock(directory, "the forecaster of this vehicle")
        self._secret = load_secret(directory)
        self._segment_bytes = max(1, max_bytes // SEGMENTS)
        self._max_bytes = max_bytes
        self._file: Any = None
        self._path = directory
        self._kept: set[str] = set()
        self.head, self.notes = self._recover()
        self._set_head(self.head)

    def append(self, record: Mapping[str, Any]) -> str:
        """Write a record; return its hash once it is on disk.

        Raises
        ------
        StorageError
            It could not be written; the log is as it was.
        """
        line, digest = seal(record, self.head.n + 1, self.head.hash, self._secret)
        file = self._open(len(line))
        with explained("write", self._path):
            start = file.tell()
            try:
                if file.write(line) < len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # noqa: TRY301 - as any other fault
                os.fsync(file.fileno())
            except OSError:
                # Half a line would look like a torn one, and the next record would stand behind it.
                with contextlib.suppress(OSError):
                    os.ftruncate(file.fileno(), start)
                self._close()
                raise
        self._set_head(Head(self.head.first, self.head.before, self.head.n + 1, digest))
        return digest

    def keep_model(self, digest: str, content: bytes) -> None:
        """Keep a model's record, so that its forecasts can be explained."""
        if digest in self._kept:
            return
        path = make_directory(self._directory / "models") / f"{digest}.json"
        if not path.exists():
            with replacing(path) as file:
                file.write(content)
        self._kept.add(digest)

    def close(self) -> None:
        """End writing. Idempotent."""
        self._close()
        self._lock.release()

    # Segments

    def _open(self, size: int) -> Any:
        """Return the segment that takes a record of `size` bytes."""
        if self._file is not None and self._is_full(self._file.tell(), size):
            self._close()
            self._make_room()
        if self._file is None:
            paths = segments(self._directory)
            path = paths[-1] if paths else None
            if path is None or self._is_full(path.stat().st_size, size):
                number = 1 if path is None else int(path.stem) + 1
                path = self._directory / f"{number:08d}.jsonl"
            with explained("open", path):
                handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
                # Without a buffer: what is left in one would be written when a file is closed that has no room.
                self._file, self._path = os.fdopen(handle, "ab", buffering=0), path
                sync_folder(self._directory)
        return self._file

    def _is_full(self, so_far: int, size: int) -> bool:
        return so_far > 0 and so_far + size > self._segment_bytes

    def _close(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None

    def _make_room(self) -> None:
        """Let the oldest segments go: first the head says so, then they are deleted."""
        paths = segments(self._directory)
        sizes = [path.stat().st_size for path in paths]
        gone = 0
        while len(paths) - gone > 1 and sum(sizes[gone:]) + self._segment_bytes > self._max_bytes:
            gone += 1
        if not gone:
            return
        first = next(records(paths[gone], self._secret))
        self._set_head(Head(first["n"], first["previous"], self.head.n, self.head.hash))
        for path in paths[:gone]:
            with explained("delete", path):
                path.unlink(missing_ok=True)
        used = {digest.decode() for path in paths[gone:] for digest in _DIGEST.findall(path.read_bytes())}
        for path in (self._directory / "models").glob("*.json"):
            if path.stem not in used:
                path.unlink(missing_ok=True)
                self._kept.discard(path.stem)

    def _set_head(self, head: Head) -> None:
        # Not synchronised on purpose: the segment is, and a head that lags behind it is a true one.
        path = self._directory / "head.json"
        draft = path.with_name(".head.json.tmp")
        with explained("write", path):
            with open_private(draft, "wb") as file:
                file.write(head.to_bytes(self._secret))
            draft.replace(path)
        self.head = head

    # After a restart

    def _recover(self) -> tuple[Head, tuple[str, ...]]:
        """Return where to go on, and what is wrong. What is missing is not repaired: the gap shall be found."""
        notes: list[str] = []
        paths = segments(self._directory)
        head = self._read_head(notes, has_records=bool(paths))
        if paths and _drop_torn_end(paths[-1]):
            notes.append("a record that was being written when the process ended was dropped")
        last = _last_record(paths, self._secret)
        if isinstance(last, str):
            notes.append(last)
        elif last is not None and last["n"] >= head.n:
            if head.n >= head.first and not _has(paths, head, self._secret):
                # Going on from the head, not from what is there: the break shall stay visible.
                return head, (*notes, f"record {head.n} is not the one that the log's head names")
            if head.n == 0:
                first = next(records(paths[0], self._secret))
                head = Head(first["n"], first["previous"])
            head = Head(head.first, head.before, last["n"], last["hash"])
        elif head.n >= head.first:
            since = head.first if last is None else last["n"] + 1
            notes.append(f"records {since} to {head.n} are missing")
        self._leftovers(paths, head)
        return head, tuple(notes)

    def _read_head(self, notes: list[str], *, has_records: bool) -> Head:
        try:
            return Head.from_bytes((self._directory / "head.json").read_bytes(), self._secret)
        except FileNotFoundError:
            if has_records:
                notes.append("the log's head is missing")
        except VerificationError as fault:
            notes.append(str(fault))
        return Head()

    def _leftovers(self, paths: list[Path], head: Head) -> None:
        """Delete segments that had given way already when the process ended."""
        for path, following in pairwise(paths):
            with contextlib.suppress(VerificationError, StopIteration):
                if next(records(following, self._secret))["n"] <= head.first:
                    path.unlink(missing_ok=True)
                    continue
            return


def newest_head(directory: Path) -> LogHead | None:
    """Return what a witness is told of a log; None: there is none, or its head cannot be read now."""
    try:
        return Head.from_bytes((directory / "head.json").read_bytes(), None).log_head()
    except (OSError, ValueError, VerificationError):
        return None


def segments(directory: Path) -> list[Path]:
    """Return a log's segments, oldest first; raises StorageError."""
    with explained("list", directory):
        return sorted(path for path in directory.iterdir() if _SEGMENT.fullmatch(path.name))


def records(path: Path, secret: bytes | None) -> Iterator[dict[str, Any]]:
    """Yield a segment's records, each verified by itself, see `unseal`; a torn last line is left out.

    Raises
    ------
    VerificationError
        A line was changed, or added without the secret.
    """
    with explained("read", path), path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if line.endswith(b"\n"):
                yield unseal(line, f"{path.name}, line {number}", secret)


def _drop_torn_end(path: Path) -> bool:
    with explained("read", path), path.open("r+b") as file:
        content = file.read()
        whole = content.rfind(b"\n") + 1
        if whole == len(content):
            return False
        file.truncate(whole)
        os.fsync(file.fileno())
        return True


def _last_record(paths: list[Path], secret: bytes) -> dict[str, Any] | str | None:
    """Return the newest record, what is wrong with it, or None when there is none."""
    for path in reversed(paths):
        with explained("read", path):
            lines = path.read_bytes().splitlines(keepends=True)
        if lines:
            try:
                return unseal(lines[-1], f"{path.name}, line {len(lines)}", secret)
            except VerificationError as fault:
                return str(fault)
    return None


def _has(paths: list[Path], head: Head, secret: bytes) -> bool:
    """Whether the record that the head names is there; it is among the last, as the head lags a little at most."""
    for path in reversed(paths):
        with contextlib.suppress(VerificationError):
            for record in records(path, secret):
                if record["n"] == head.n:
                    return bool(record["hash"] == head.hash)
    return False
