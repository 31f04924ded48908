"""Reading the log for an auditor: is it whole, and what was said at a time."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from edge_agent.forecast.log import Head, records, segments
from edge_agent.forecast.model import Served, load_model
from edge_agent.storage import explained
from schemas.errors import NotFoundError, StorageError, VerificationError


@dataclass(frozen=True)
class Seen:
    """A head of the log that somebody else has seen.

    Attributes
    ----------
    n : int
        Number of its newest record.
    hash : str
        That record's hash.
    at : float
        When, by the witness's clock, seconds since the epoch.
    """

    n: int
    hash: str
    at: float


@dataclass(frozen=True)
class Checked:
    """A log that was found whole.

    Attributes
    ----------
    first, last : int
        Numbers of the oldest and the newest record; `last` is ``first - 1`` when there is none.
    since, until : float or None
        Their times.
    models : tuple of str
        Digests of the models that its forecasts were made with, in the order of first use.
    notes : tuple of str
        What the forecaster itself noted down: restarts after which something was missing.
    keyed : bool
        Whether the HMAC of each record and of the head could be checked: the vehicle's secret was there.
    witnessed : Seen or None
        The newest record that a witness has seen, if it is one of these: it vouches for all up to it.
    """

    first: int
    last: int
    since: float | None
    until: float | None
    models: tuple[str, ...]
    notes: tuple[str, ...]
    keyed: bool
    witnessed: Seen | None


def verify(directory: Path, seen: Sequence[Seen] = ()) -> Checked:
    """Walk the whole chain.

    Parameters
    ----------
    directory : Path
    seen : sequence of Seen
        Heads that a witness has seen.

    Raises
    ------
    VerificationError
        A record was changed, removed, added or reordered, or the beginning or the end was cut off; the text says where.
        A witness has seen other or later records, or a log that got shorter. A model that is needed for explanations is
        missing, or another.
        Without the vehicle's secret and without a witness, whoever changed it may have made all of it fit.
    NotFoundError
        There is no log.
    """
    while True:
        key = _key(directory)
        head = _head(directory, key)
        try:
            return _walk(directory, head, key, seen)
        except (VerificationError, StorageError):
            # A forecaster that is at work may have let the oldest records go meanwhile; then it says so in the head.
            if _head(directory, key).first == head.first:
                raise


def _walk(directory: Path, head: Head, key: bytes | None, seen: Sequence[Seen]) -> Checked:
    n, previous = head.first - 1, head.before
    witnessed: Seen | None = _agree(seen, n, previous)
    times: list[float] = []
    models: dict[str, None] = {}
    notes: list[str] = []
    began = False
    for where, record in _all_records(directory, key):
        if not began and record["n"] < head.first:
            continue  # gave way already; the process ended before it was deleted
        began = True
        if record["n"] != n + 1:
            raise VerificationError(f"{where}: record {record['n']} follows record {n}: {_missing(n, record['n'])}")
        if record["previous"] != previous:
            raise VerificationError(f"{where}: record {record['n']} does not continue record {n}: one was replaced")
        n, previous = record["n"], record["hash"]
        if n == head.n and previous != head.hash:
            raise VerificationError(f"{where}: record {n} is not the one that the log's head names: it was replaced")
        witnessed = _agree(seen, n, previous) or witnessed
        times = [times[0] if times else record["time"], record["time"]]
        if record["kind"] == "forecast":
            models[record["model"]["digest"]] = None
        else:
            notes.append(f"record {n}: {record['text']}")
    if n < head.n:
        raise VerificationError(f"records {n + 1} to {head.n} are missing: the log's end was cut off")
    _check_length(n, seen)
    for digest in models:
        model_of(directory, digest)
    since, until = (times[0], times[1]) if times else (None, None)
    return Checked(head.first, n, since, until, tuple(models), tuple(notes), key is not None, witnessed)


def _agree(seen: Sequence[Seen], n: int, digest: str) -> Seen | None:
    """Return who has seen record `n`; raises VerificationError when it was another one."""
    of_n = [each for each in seen if each.n == n]
    for each in of_n:
        if each.hash != digest:
            raise VerificationError(
                f"record {n} is not the one that a witness has seen at {clock(each.at)}: the log was written anew"
            )
    return of_n[0] if of_n else None


def _check_length(n: int, seen: Sequence[Seen]) -> None:
    """Raise VerificationError when a witness has seen more than `n` records, or a log that got shorter."""
    if later := [each for each in seen if each.n > n]:
        newest = max(later, key=lambda each: each.n)
        raise VerificationError(
            f"a witness has seen record {newest.n} at {clock(newest.at)}, and the log ends with record {n}: an old "
            "copy was put back, or the log was begun anew"
        )
    for one, other in pairwise(sorted(seen, key=lambda each: each.at)):
        if other.n <= one.n and other != one:
            raise VerificationError(
                f"the log got shorter: a witness has seen record {one.n} at {clock(one.at)}, and at {clock(other.at)} "
                f"the newest was record {other.n}: an old copy was put back, or the log was begun anew"
            )


def clock(time: float) -> str:
    """Return a time in words."""
    return dt.datetime.fromtimestamp(time, dt.UTC).isoformat(timespec="milliseconds")


def at_time(directory: Path, time: float, *, within: float) -> dict[str, Any]:
    """Return the forecast that was made nearest to `time`, at most `within` seconds apart; infinity: the last one.

    Raises
    ------
    NotFoundError
        There is none.
    """
    best: dict[str, Any] | None = None
    for _, record in _all_records(directory, _key(directory)):
        if record["kind"] == "forecast" and (best is None or _apart(record, time) <= _apart(best, time)):
            best = record
    if best is None or _apart(best, time) > within:
        raise NotFoundError(
            f"no forecast within {within:g} s of that time"
            + ("; the log holds none" if best is None else f"; the nearest is {_apart(best, time):.0f} s away")
        )
    return best


def _apart(record: dict[str, Any], time: float) -> float:
    return float(abs(record["time"] - time))


def model_of(directory: Path, digest: str) -> Served:
    """Return the model that forecasts were made with.

    Raises
    ------
    VerificationError
        It is missing, or another.
    """
    path = directory / "models" / f"{digest}.json"
    with explained("read", path):
        content = path.read_bytes() if path.exists() else b""
    if not content:
        raise VerificationError(f"the model {digest[:12]} of the log's forecasts is missing: {path}")
    served = load_model(content)
    if served.record.digest != digest:
        raise VerificationError(f"{path} holds another model, {served.record.digest[:12]}")
    return served


def _key(directory: Path) -> bytes | None:
    """Return the log's secret; None: this is a copy without it."""
    path = directory / "secret"
    with explained("read", path):
        return path.read_bytes() if path.exists() else None


def _head(directory: Path, key: bytes | None) -> Head:
    path = directory / "head.json"
    if not directory.is_dir() or not (path.exists() or segments(directory)):
        raise NotFoundError(f"there is no forecast log in {directory}")
    if not path.exists():
        raise VerificationError("the log's head is missing: its beginning and end cannot be checked")
    with explained("read", path):
        return Head.from_bytes(path.read_bytes(), key)


def _all_records(directory: Path, key: bytes | None) -> Iterator[tuple[str, dict[str, Any]]]:
    for path in segments(directory):
        for record in records(path, key):
            yield path.name, record


def _missing(last: int, number: int) -> str:
    if number > last + 1:
        return f"records {last + 1} to {number - 1} were removed"
    return "records were added or their order changed"
