"""What is particular to PostgreSQL: how to connect, how to stay the only coordinator, and its faults in words.

Everything that is written goes over the connection that holds the lock. A coordinator whose lock the server gave free -
it was restarted, or took us for dead - can therefore write nothing more, and another one that has the lock since is
never disturbed. Reading goes over a pool of other connections.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa

from coordinator.journal.port import Again
from schemas.errors import StorageError

_REFUSAL = (
    "the journal {what} is in use by another coordinator: stop that one first, give this one a database of its own "
    "(--journal), or let it wait for its turn (--standby)"
)
_LOST = (
    "the connection to the journal {what} was lost ({why}), and with it the lock on it: start the coordinator again "
    "when the server is up; it goes on where it was, and agents send again what was not acknowledged"
)
KEY = int.from_bytes(hashlib.sha256(b"glassfleet-journal").digest()[:8], "big", signed=True)

_SERVER_OPTIONS = (
    # A commit that was acknowledged must be on the disk, whatever this server's default says.
    "-c synchronous_commit=on "
    # A coordinator that vanished from the network must not hold the lock for the two hours that TCP would give it. Nor
    # for the quarter of an hour for which the server would send it again what it has not acknowledged.
    "-c tcp_keepalives_idle=15 -c tcp_keepalives_interval=5 -c tcp_keepalives_count=3 -c tcp_user_timeout=30000"
)
_CONNECT: dict[str, str | int] = {
    "connect_timeout": 10,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
    "application_name": "glassfleet-coordinator",
    "options": _SERVER_OPTIONS,
}
"""Parameters of libpq, seconds (``tcp_user_timeout``: milliseconds); what the URL's query says is stronger."""


def with_driver(url: sa.URL) -> sa.URL:
    """Return the URL with the driver that is installed: ``postgres://`` and ``postgresql://`` as people write them."""
    return url.set(drivername="postgresql+psycopg") if url.drivername in ("postgres", "postgresql") else url


def make_engine(url: sa.URL) -> sa.Engine:
    """Return an engine; nothing is connected yet."""
    given = {name: value for name, value in _CONNECT.items() if name not in url.query}
    return sa.create_engine(url, connect_args=given, pool_pre_ping=True, pool_size=2, max_overflow=8)


class AdvisoryLock:
    """A PostgreSQL session lock, and the connection that holds it; the server releases it when the connection ends.

    Parameters
    ----------
    again : callable
        Asked while another coordinator has it; and when the connection was lost meanwhile, with why.

    Raises
    ------
    StorageError
        Another coordinator holds it.
    sqlalchemy.exc.DBAPIError
        The server cannot be reached.
    """

    def __init__(self, engine: sa.Engine, again: Again) -> None:
        self._what = engine.url.render_as_string(hide_password=True)
        self._turn = threading.RLock()
        self._why = ""
        self._engine = engine
        self._connection = self._connect()
        try:
            self._await(again)
        except BaseException:
            self._connection.close()
            raise

    def _connect(self) -> sa.Connection:
        connection = self._engine.connect()
        # Not the pool's any more: it is closed when we say so, and never handed to anybody else.
        connection.detach()
        return connection

    def _await(self, again: Again) -> None:
        while True:
            why, fault = "", None
            try:
                if self._try():
                    return
            except sa.exc.DBAPIError as lost:
                self._connection.close()
                why, fault = _first_line(lost.orig) or "it is gone", lost
            if not again(why):
                raise fault or StorageError(_REFUSAL.format(what=self._what))

    def _try(self) -> bool:
        # Asked again and again: who stands in the server's own line, and is gone, would be given the lock all the same.
        if self._connection.closed:
            self._connection = self._connect()
        with self._connection.begin():
            return bool(self._connection.execute(sa.select(sa.func.pg_try_advisory_lock(KEY))).scalar_one())

    @contextmanager
    def transaction(self) -> Iterator[sa.Connection]:
        """Give the connection that holds the lock, in a transaction.

        Raises
        ------
        StorageError
            The connection was lost, now or earlier. SQLAlchemy would connect again, silently and without the lock.
        """
        with self._turn:
            self._check()
            try:
                with self._connection.begin():
                    yield self._connection
            except sa.exc.DBAPIError as fault:
                if not fault.connection_invalidated:
                    raise
                self._why = _first_line(fault.orig)
                raise StorageError(_LOST.format(what=self._what, why=self._why)) from fault

    def _check(self) -> None:
        if self._why or self._connection.closed or self._connection.invalidated:
            raise StorageError(_LOST.format(what=self._what, why=self._why or "it is closed"))

    def release(self) -> None:
        """Give the journal free. Idempotent."""
        with self._turn:
            self._connection.close()


def in_words(fault: BaseException | None, what: str) -> str | None:
    """Return what a fault of PostgreSQL means and what to do about it; None when nothing better is known.

    Parameters
    ----------
    fault : exception or None
        The driver's (``SQLAlchemyError.orig``).
    what : str
        The journal's URL without its password.
    """
    state: Any = getattr(fault, "sqlstate", None)
    text = _first_line(fault)
    # A connection that was never made has no code, only the server's words.
    if state in ("28P01", "28000") or "authentication failed" in text:
        return f"the journal {what} refuses this user ({text}): put the right user and password into --journal"
    if state == "3D000" or (state is None and "database" in text and "does not exist" in text):
        return f"there is no database for the journal {what}: make it with `createdb`, or correct --journal"
    if state == "42501":
        return f"the user of the journal {what} may not make or write its tables ({text}): make it the database's owner"
    if state == "25006":
        return f"the journal {what} is read-only ({text}): point --journal at the primary server"
    if state == "53300":
        return f"the server of the journal {what} has no connection left ({text}): raise its max_connections"
    if state in ("57P01", "57P02", "57P03", "57P05") or type(fault).__name__ == "ConnectionTimeout":
        return _LOST.format(what=what, why=text)
    if state is None and type(fault).__name__ == "OperationalError":
        return (
            f"the server of the journal {what} cannot be reached ({text}): start it, or correct --journal, and start "
            "the coordinator again; it goes on where it was"
        )
    return None


def _first_line(fault: BaseException | None) -> str:
    return next(iter(str(fault).strip().splitlines()), "")[:300]


def pick(document: sa.Column[str], places: Iterable[Iterable[str]], counted: Collection[str]) -> list[Any]:
    """Return expressions as those of `coordinator.journal.opening.pick`."""
    whole = sa.cast(document, sa.JSON)
    parts = sa.func.json_build_array(*(whole[tuple(place)] for place in places))
    return [sa.cast(parts, sa.Text), *(sa.func.json_array_length(whole[x]) for x in counted)]
